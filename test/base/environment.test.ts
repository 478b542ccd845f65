import { describe, expect, test } from "bun:test";
import { EnvironmentError, readEnvironment } from "../../src/base/environment.ts";

// Goal: "ALBEDO_HOME, else $XDG_DATA_HOME/albedo, else ~/.local/share/albedo"; "a bad value stops the start with a
// clear message" (contract.md, Files, process, safety).

describe("readEnvironment()", () => {
  test("has a default for everything", () => {
    expect(readEnvironment({}, "/home/me")).toEqual({
      home: "/home/me/.local/share/albedo",
      port: null,
      idleSeconds: 600,
      unloadSeconds: 3600,
      logLevel: "info",
      origins: [],
    });
  });

  test.each<[Record<string, string>, string]>([
    [{ ALBEDO_HOME: "/data/a", XDG_DATA_HOME: "/x" }, "/data/a"],
    [{ ALBEDO_HOME: "", XDG_DATA_HOME: "/x" }, "/x/albedo"],
    [{ XDG_DATA_HOME: "/x/" }, "/x/albedo"],
    // A relative path is to be ignored.
    [{ XDG_DATA_HOME: "x" }, "/home/me/.local/share/albedo"],
    [{ XDG_DATA_HOME: "" }, "/home/me/.local/share/albedo"],
  ])("%j gives %p", (variables, home) => {
    expect(readEnvironment(variables, "/home/me").home).toBe(home);
  });

  test("reads numbers and the level", () => {
    const read = readEnvironment(
      {
        ALBEDO_PORT: "8080",
        ALBEDO_IDLE_SECONDS: "0",
        ALBEDO_UNLOAD_SECONDS: "31536000",
        ALBEDO_LOG: "debug",
      },
      "/home/me",
    );
    expect(read).toMatchObject({
      port: 8080,
      idleSeconds: 0,
      unloadSeconds: 31_536_000,
      logLevel: "debug",
    });
    const { origins } = readEnvironment({ ALBEDO_ORIGINS: "https://a.example, http://b:80" }, "/");
    expect(origins).toEqual(["https://a.example", "http://b:80"]);
    expect(readEnvironment({ ALBEDO_PORT: "0" }, "/").port).toBe(0);
    expect(readEnvironment({ ALBEDO_PORT: "65535" }, "/").port).toBe(65_535);
  });

  test.each([
    ["ALBEDO_HOME", "data"],
    ["ALBEDO_HOME", "./data"],
    ["ALBEDO_PORT", "65536"],
    ["ALBEDO_PORT", "-1"],
    ["ALBEDO_PORT", "80.5"],
    ["ALBEDO_PORT", "http"],
    ["ALBEDO_PORT", " 80"],
    ["ALBEDO_PORT", "0x50"],
    ["ALBEDO_PORT", "99999999999999999999"],
    ["ALBEDO_IDLE_SECONDS", "soon"],
    ["ALBEDO_IDLE_SECONDS", "1e3"],
    ["ALBEDO_UNLOAD_SECONDS", "31536001"],
    ["ALBEDO_LOG", "verbose"],
    ["ALBEDO_LOG", "INFO"],
    ["ALBEDO_ORIGINS", "board.example"],
    ["ALBEDO_ORIGINS", "*"],
    ["ALBEDO_ORIGINS", "https://board.example/path"],
  ])("refuses %s=%p and names both", (variable, value) => {
    let thrown: unknown = null;
    try {
      readEnvironment({ [variable]: value }, "/home/me");
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(EnvironmentError);
    expect((thrown as Error).message).toStartWith(`${variable} must `);
    expect((thrown as Error).message).toContain(`'${value}'`);
  });

  test("refuses a home directory that depends on where one stands", () => {
    expect(() => readEnvironment({}, "me")).toThrow("HOME must be an absolute path");
    expect(readEnvironment({ ALBEDO_HOME: "/data" }, "me").home).toBe("/data");
  });
});
