import { expect, test } from "bun:test";
import { admitsEventStream, admitsZstd } from "../../src/http/accept.ts";

test.each<[string | null, boolean]>([
  [null, true],
  ["", true],
  ["*/*", true],
  ["text/*", true],
  ["text/event-stream", true],
  ["TEXT/Event-Stream;charset=utf-8", true],
  ["application/json, text/event-stream;q=0.1", true],
  ["application/json, */*;q=0.001", true],
  ["text/event-stream;q=0, */*", false],
  ["text/event-stream; q=0.0, text/*;q=1", false],
  ["text/*;q=0, */*;q=1", false],
  ["text/event-stream, text/*;q=0, */*;q=0", true],
  ["*/*;q=0", false],
  ["application/json", false],
  ["text/html,application/xhtml+xml", false],
  ["text/event-stream;q=nonsense", false],
])("Accept '%s' admits the stream: %p", (header, admitted) => {
  expect(admitsEventStream(header)).toBe(admitted);
});

test.each<[string | null, boolean]>([
  [null, false],
  ["", false],
  ["identity", false],
  ["gzip, deflate, br", false],
  ["zstd", true],
  ["ZSTD", true],
  ["gzip, deflate, br, zstd", true],
  ["zstd;q=0.5", true],
  ["zstd;q=0", false],
  ["zstd;q=0.000, *", false],
  ["*", true],
  ["*;q=0", false],
  ["gzip, *;q=0.1", true],
  ["identity, zstd;q=0.5", false],
  ["identity;q=0.5, zstd", true],
  ["identity;q=0, zstd", true],
  ["identity, zstd", true],
  ["zstandard", false],
])("Accept-Encoding '%s' admits zstd: %p", (header, admitted) => {
  expect(admitsZstd(header)).toBe(admitted);
});
