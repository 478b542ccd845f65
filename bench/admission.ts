import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { drive, encodeRequest, type Load } from "./support/http_client.ts";
import { promptFor } from "./support/model_plan.ts";
import { temporaryDirectory } from "./support/paths.ts";
import {
  committed,
  createSession,
  creationBody,
  forEachOf,
  sendMessage,
} from "./support/prompting.ts";
import { Report } from "./support/report.ts";
import { median, quantile } from "./support/stats.ts";

/**
 * How many admissions a second the daemon takes, beside the same Elysia app without a store, the same daemon with
 * one commit a request, and one raw SQLite commit a request, in the same app and in a bare server. All of them run
 * from source, in turns, round by round; a ratio is taken within a round and the median of the rounds is told.
 */
/** Requests that are left out: what is compiled while it runs has been compiled then, on either side. */
const WARM_UP_REQUESTS = 6000;
const ROUNDS = 5;
const CONNECTIONS = 64;
const CREATIONS = 2000;
const CREATIONS_ALONE = 400;
/** So many sessions with a turn that runs; each takes so many messages in a round. */
const HOLDERS = 64;
const HOLDERS_ALONE = 12;
const MESSAGES_EACH = 31;
const TOKEN = "t".repeat(43);

interface Server {
  readonly port: number;
  readonly token: string | undefined;
  /** `null` for a server that is none. */
  readonly daemon: Daemon | null;
  /** Sessions whose queue takes messages. */
  readonly holders: readonly string[];
}

type Name = "daemon" | "noStore" | "oneCommit" | "rawCommitApp" | "rawCommit";
type Servers = Readonly<Record<Name, Server>>;
type Round = Partial<Record<Name, Load>>;

interface Kind {
  readonly name: string;
  readonly connections: number;
  readonly status: number;
  /** In a round. */
  readonly requests: number;
  readonly requestsFor: (server: Server) => Promise<Uint8Array[]>;
}

const workspace = temporaryDirectory();
const KINDS: readonly Kind[] = [
  {
    name: "creations",
    connections: CONNECTIONS,
    status: 201,
    requests: CREATIONS,
    requestsFor: async (server) => creations(server, CREATIONS),
  },
  {
    name: "messages",
    connections: CONNECTIONS,
    status: 202,
    requests: HOLDERS * MESSAGES_EACH,
    requestsFor: (server) => messages(server, HOLDERS),
  },
  {
    name: "creations",
    connections: 1,
    status: 201,
    requests: CREATIONS_ALONE,
    requestsFor: async (server) => creations(server, CREATIONS_ALONE),
  },
  {
    name: "messages",
    connections: 1,
    status: 202,
    requests: HOLDERS_ALONE * MESSAGES_EACH,
    requestsFor: (server) => messages(server, HOLDERS_ALONE),
  },
];

async function main(): Promise<void> {
  const report = new Report("admission", "admissions a second");
  const servers = await startServers();
  for (const kind of KINDS) tell(report, kind, await measure(servers, kind));
  report.finish();
}

async function startServers(): Promise<Servers> {
  const model = await spawnHelper("model_server.ts");
  const options = { modelPort: model.port, flavour: "source" } as const;
  const noStore = await spawnHelper("no_store_app.ts", [TOKEN]);
  const rawApp = await spawnHelper("no_store_app.ts", [TOKEN, temporaryDirectory()]);
  const raw = await spawnHelper("raw_commit_server.ts", [temporaryDirectory()]);
  const holders = Array.from({ length: HOLDERS }, () => Bun.randomUUIDv7());
  return {
    daemon: await serverOf(await startDaemon(options)),
    oneCommit: await serverOf(
      await startDaemon({ ...options, entry: `${import.meta.dir}/support/one_commit_daemon.ts` }),
    ),
    noStore: { port: noStore.port, token: TOKEN, daemon: null, holders },
    rawCommitApp: { port: rawApp.port, token: TOKEN, daemon: null, holders },
    rawCommit: { port: raw.port, token: undefined, daemon: null, holders },
  };
}

async function serverOf(daemon: Daemon): Promise<Server> {
  const holders: string[] = [];
  await forEachOf(Array.from({ length: HOLDERS }), 16, async () => {
    holders.push(await createSession(daemon));
  });
  return { port: daemon.port, token: daemon.token, daemon, holders };
}

/** The rounds of one kind of admission. */
async function measure(servers: Servers, kind: Kind): Promise<Round[]> {
  const names: readonly Name[] =
    kind.connections === 1
      ? ["daemon", "rawCommit", "rawCommitApp"]
      : ["daemon", "noStore", "oneCommit"];
  const rounds: Round[] = [];
  const warmUp = Math.ceil(WARM_UP_REQUESTS / kind.requests);
  for (let number = 0; number < warmUp + ROUNDS; number += 1) {
    const round: Round = {};
    for (const name of number % 2 === 0 ? names : names.toReversed()) {
      const server = servers[name];
      const requests = await kind.requestsFor(server);
      const { connections, status } = kind;
      round[name] = await drive({ port: server.port, connections, requests, status });
    }
    if (number >= warmUp) rounds.push(round);
  }
  return rounds;
}

function tell(report: Report, kind: Kind, rounds: readonly Round[]): void {
  const rateIn = (round: Round, name: Name): number => round[name]?.perSecond ?? Number.NaN;
  const ratio = (other: Name): number =>
    median(rounds.map((round) => rateIn(round, "daemon") / rateIn(round, other)));
  const rate = (name: Name): string =>
    median(rounds.map((round) => rateIn(round, name))).toFixed(0);
  const basis = (other: Name): string => `${rate("daemon")}/s to ${rate(other)}/s`;
  const what = `${kind.name} at ${kind.connections}`;
  if (kind.connections === 1) {
    report.figure(`${what}: share of the app with one raw commit`, ratio("rawCommitApp"), {
      atLeast: 0.9,
      basis: basis("rawCommitApp"),
    });
    report.figure(`${what}: share of a bare server with one raw commit`, ratio("rawCommit"), {
      atLeast: 0.9,
      basis: basis("rawCommit"),
    });
  } else {
    report.figure(`${what}: share of the app without a store`, ratio("noStore"), {
      atLeast: 0.4,
      basis: basis("noStore"),
    });
    report.figure(`${what}: times one commit a request`, ratio("oneCommit"), {
      atLeast: 3,
      basis: basis("oneCommit"),
    });
  }
  const latencies = rounds.flatMap((round) => round.daemon?.latenciesMs ?? []);
  report.figure(`${what}: median answer`, median(latencies), {
    unit: "ms",
    basis: `99 of 100 within ${quantile(latencies, 0.99).toFixed(2)} ms`,
  });
}

function creations({ port, token }: Server, count: number): Uint8Array[] {
  return Array.from({ length: count }, () => {
    const body = creationBody(workspace);
    return encodeRequest({ method: "POST", path: "/sessions", port, token, body });
  });
}

async function messages(server: Server, holders: number): Promise<Uint8Array[]> {
  const { port, token, daemon } = server;
  const sessionIds = server.holders.slice(0, holders);
  if (daemon !== null) await occupy(daemon, sessionIds);
  const text = "Look at the failing test and tell me what is wrong with it.";
  const body = JSON.stringify({ kind: "message", text });
  const requests: Uint8Array[] = [];
  for (let each = 0; each < MESSAGES_EACH; each += 1) {
    for (const sessionId of sessionIds) {
      const path = `/sessions/${sessionId}/inputs/${Bun.randomUUIDv7()}`;
      requests.push(encodeRequest({ method: "PUT", path, port, token, body }));
    }
  }
  return requests;
}

/** Ends what the round before left, and starts a turn in each session whose model never answers. */
async function occupy(daemon: Daemon, sessionIds: readonly string[]): Promise<void> {
  await forEachOf(sessionIds, 16, async (sessionId) => {
    await daemon.request({ method: "POST", path: `/sessions/${sessionId}/interrupt` });
    const id = await sendMessage(daemon, sessionId, promptFor({ hold: true }));
    await committed(daemon, sessionId, id);
  });
}

await main();
