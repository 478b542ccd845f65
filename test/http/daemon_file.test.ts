import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DaemonFileError, removeDaemonFile, writeDaemonFile } from "../../src/http/daemon_file.ts";
import { tempDir } from "../support/temp_dir.ts";

const FILE = { url: "http://127.0.0.1:1", token: "t", pid: 1, instance_id: "one" };

test("daemon.json is private and whole, whatever lay there before", () => {
  using home = tempDir();
  const path = join(home.path, "daemon.json");
  writeFileSync(path, "{", { mode: 0o644 });
  writeFileSync(`${path}.next`, "left behind", { mode: 0o666 });
  writeDaemonFile(home.path, FILE);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(FILE);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(existsSync(`${path}.next`)).toBe(false);
});

test("daemon.json goes with its own instance and with no other", () => {
  using home = tempDir();
  const path = join(home.path, "daemon.json");
  removeDaemonFile(home.path, "one");
  writeDaemonFile(home.path, { ...FILE, instance_id: "other" });
  removeDaemonFile(home.path, "one");
  expect(existsSync(path)).toBe(true);
  removeDaemonFile(home.path, "other");
  expect(existsSync(path)).toBe(false);
  writeFileSync(path, "{");
  removeDaemonFile(home.path, "one");
  expect(existsSync(path)).toBe(true);
});

test("daemon.json that cannot be written says what to do", () => {
  using home = tempDir();
  mkdirSync(join(home.path, "daemon.json"));
  expect(() => writeDaemonFile(home.path, FILE)).toThrow(DaemonFileError);
  expect(() => writeDaemonFile(home.path, FILE)).toThrow(
    /cannot be written \(.+\): free some space/,
  );
});
