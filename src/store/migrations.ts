// oxlint-disable-next-line no-restricted-imports -- Migrations lie beside the floors, not on one.
import core from "../../migrations/0001_core.sql" with { type: "text" };
import type { Database } from "./database.ts";
import { sha256Hex } from "./fingerprint.ts";
import { StoreOpenError } from "./store_open_error.ts";

/**
 * Owns the way from any older schema to the current one: numbered, forward only, each in one transaction together
 * with its record. The text is imported, so that a compiled executable carries it.
 */
export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

export const MIGRATIONS: readonly Migration[] = [{ version: 1, name: "0001_core", sql: core }];

/** "albd": tells our database from any other SQLite file. */
const APPLICATION_ID = 0x616c6264;

const CREATE_RECORD = `
  CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
  ) STRICT`;

interface Applied {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
}

/**
 * Applies what is missing.
 *
 * @param path where the database lies, for the messages
 * @throws {StoreOpenError} newer, changed, foreign
 */
export function migrate(
  database: Database,
  options: { path: string; now: number; migrations?: readonly Migration[] },
): void {
  const migrations = options.migrations ?? MIGRATIONS;
  const applied = readApplied(database, options.path);
  const known = new Map(migrations.map((migration) => [migration.version, migration]));
  for (const record of applied) assertKnown(record, known.get(record.version), options.path);
  const newest = applied.at(-1)?.version ?? 0;
  for (const migration of migrations) {
    if (migration.version <= newest) continue;
    apply(database, migration, options.now);
  }
}

function readApplied(database: Database, path: string): Applied[] {
  const tables = database
    .query<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all()
    .map(({ name }) => name);
  if (tables.length === 0) return [];
  if (!tables.includes("schema_migrations")) {
    throw new StoreOpenError(
      "foreign",
      `The database "${path}" belongs to another program: move it away or set ALBEDO_HOME to another ` +
        "directory, then start again",
    );
  }
  return database
    .query<Applied>("SELECT version, name, checksum FROM schema_migrations ORDER BY version")
    .all();
}

function assertKnown(record: Applied, migration: Migration | undefined, path: string): void {
  if (migration === undefined) {
    throw new StoreOpenError(
      "newer",
      `The database "${path}" was written by a newer albedo (it has migration "${record.name}"): ` +
        "install that version or a later one, or set ALBEDO_HOME to another directory",
    );
  }
  if (migration.name !== record.name || sha256Hex(migration.sql) !== record.checksum) {
    throw new StoreOpenError(
      "changed",
      `The database "${path}" was made by another build of albedo (migration "${record.name}" differs): ` +
        "use the build that made it, or set ALBEDO_HOME to another directory",
    );
  }
}

function apply(database: Database, migration: Migration, now: number): void {
  database.transaction(() => {
    database.execute(CREATE_RECORD);
    database.execute(`PRAGMA application_id = ${APPLICATION_ID}`);
    database.execute(migration.sql);
    database.points.reached("migrate.after_statements");
    database
      .query(
        "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
      )
      .run(migration.version, migration.name, sha256Hex(migration.sql), now);
  });
}
