// Builds for Windows on x86-64 with Debian's mingw-w64, and runs under Wine. Both are installed if they are missing.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, has, output, root, run } from "./run.mjs";
import { apt } from "./system.mjs";

export const TRIPLE = "x86_64-pc-windows-gnu";
const LINKER = "x86_64-w64-mingw32-gcc";
const PACKAGES = ["wine64", "wine", "gcc-mingw-w64-x86-64"];

const folder = join(root, ".cache/wine");
const prefix = join(folder, "prefix");

/** Debian has the program that starts 64-bit programs, without a warning that 32-bit ones would fail, outside of the PATH. */
export function wine() {
  const found = ["/usr/lib/wine/wine64", "/usr/bin/wine64", "/usr/bin/wine"].find((file) => existsSync(file));
  if (!found) throw new Failure("there is no wine");
  return found;
}

/** Rust's library takes random numbers from a library of Windows that Wine has since version 9.3. */
function addRandom() {
  const library = join(prefix, "drive_c/windows/system32/bcryptprimitives.dll");
  if (existsSync(library)) return;
  const source = join(folder, "random.c");
  writeFileSync(
    source,
    `#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID to, ULONG bytes);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T bytes) { return SystemFunction036(to, (ULONG)bytes); }
`,
  );
  output(LINKER, ["-shared", "-O1", source, "-o", library, "-ladvapi32"]);
}

/** Sets up the compiler and Wine; the result is the environment for cargo and for programs under Wine. */
export function setupWine() {
  if (!has("wine") || !has(LINKER)) apt(PACKAGES);
  run("rustup", ["target", "add", TRIPLE]);
  mkdirSync(folder, { recursive: true });
  const env = {
    ...process.env,
    WINEPREFIX: prefix,
    WINEDEBUG: "-all",
    // neither .NET nor a browser engine, for which a new prefix would ask
    WINEDLLOVERRIDES: "mscoree,mshtml=",
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER: LINKER,
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER: wine(),
    // compilers and drivers of this machine are not there for Windows' programs, or only through libraries of Wine's
    GRADLOOM_WITHOUT: ["c", "llvm", "opencl", "vulkan", "cuda", process.env.GRADLOOM_WITHOUT].filter(Boolean).join(","),
  };
  if (!existsSync(join(prefix, "system.reg"))) output(wine(), ["wineboot", "--init"], { env });
  addRandom();
  return env;
}
