import { resolve } from "node:path";

/**
 * The first run (`npm start`): compiles `dist/albedo` where that is needed, has it start the daemon, and sends it a
 * prompt. With nothing configured a model answers that is built in and needs no key and no network.
 *
 *   npm start
 *   npm start -- "your own words"
 */
const ROOT = resolve(import.meta.dir, "..");
const FIRST_WORDS = "Hello! Who are you, and what can you do for me?";

const words = process.argv.slice(2);
const prompt = words.length === 0 ? [FIRST_WORDS] : words;
const isWindows = process.platform === "win32";
// Windows has no POSIX shell; there it runs from source.
const albedo = isWindows
  ? [process.execPath, resolve(ROOT, "src/main.ts")]
  : ["sh", resolve(ROOT, "scripts/albedo.sh")];

console.error(`> ${prompt.join(" ")}\n`);
const child = Bun.spawn([...albedo, "prompt", "--", ...prompt], {
  stdio: ["ignore", "inherit", "inherit"],
});
const code = await child.exited;
if (code === 0) {
  const name = isWindows ? "bun src/main.ts" : "dist/albedo";
  console.error(`
The daemon goes on in the background. What to do next:
  ${name} prompt "Your own words"   a new session in the directory you are in
  ${name} sessions                  what there is
  ${name} --help                    all verbs
  ${name} daemon --stop             stop the daemon; what it accepted stays`);
}
process.exit(code);
