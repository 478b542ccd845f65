import { appendFileSync } from "node:fs";
import { loadavg } from "node:os";

/**
 * Owns how figures are told: one line each, with its target and `ok` or `MISS`, and an exit code of 1 where one is
 * missed. `bench/all.ts` hears of the figures through the file that `BENCH_REPORT` names.
 */
export interface Figure {
  readonly bench: string;
  readonly name: string;
  readonly value: string;
  /** Empty for a figure that is told and not judged. */
  readonly target: string;
  readonly ok: boolean;
  /** What the value was made of. */
  readonly basis: string;
}

export interface FigureOptions {
  readonly unit?: string;
  readonly atMost?: number;
  readonly atLeast?: number;
  /** Decimal places. */
  readonly digits?: number;
  readonly basis?: string;
}

export class Report {
  readonly #bench: string;
  #missed = 0;

  constructor(bench: string, what: string) {
    this.#bench = bench;
    const load = loadavg()[0]?.toFixed(2) ?? "?";
    console.log(`${bench}: ${what} (load ${load} before)`);
  }

  figure(name: string, value: number, options: FigureOptions = {}): void {
    const { unit = "", atMost, atLeast, digits = 2, basis = "" } = options;
    const text = (number: number): string =>
      `${number.toFixed(digits)}${unit === "" ? "" : ` ${unit}`}`;
    const target =
      atMost !== undefined
        ? `<= ${plain(atMost, unit)}`
        : atLeast !== undefined
          ? `>= ${plain(atLeast, unit)}`
          : "";
    // A figure that is not a number was not measured, which is a miss.
    const ok =
      target === "" || (atMost !== undefined ? value <= atMost : value >= (atLeast ?? Number.NaN));
    this.#tell({ bench: this.#bench, name, value: text(value), target, ok, basis });
  }

  note(text: string): void {
    console.log(`  ${text}`);
  }

  /** Ends the process. */
  finish(): void {
    process.exit(this.#missed > 0 ? 1 : 0);
  }

  #tell(figure: Figure): void {
    if (!figure.ok) this.#missed += 1;
    const verdict = figure.target === "" ? "" : figure.ok ? "ok" : "MISS";
    const columns = [
      figure.name.padEnd(52),
      figure.value.padStart(14),
      figure.target.padEnd(14),
      verdict.padEnd(4),
      figure.basis === "" ? "" : `[${figure.basis}]`,
    ];
    console.log(`  ${columns.join("  ").trimEnd()}`);
    const path = process.env.BENCH_REPORT;
    if (path !== undefined && path !== "") appendFileSync(path, `${JSON.stringify(figure)}\n`);
  }
}

function plain(number: number, unit: string): string {
  return unit === "" ? String(number) : `${number} ${unit}`;
}
