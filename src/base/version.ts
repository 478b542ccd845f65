// oxlint-disable-next-line no-restricted-imports -- package.json stands on no floor
import { version } from "../../package.json" with { type: "json" };

/** The program's version, as package.json states it; embedded when the program is compiled. */
export const VERSION: string = version;
