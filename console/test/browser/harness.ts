/** A browser, and the console in it: over a mock of its own, or over the daemon at BASE_URL (with TOKEN). */

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { Mock } from "../../mock/server";

export const ROOT = process.env["CONSOLE_ROOT"]!;
const BASE_URL = process.env["BASE_URL"];
const TOKEN = process.env["TOKEN"];
const SHOTS = process.env["SHOTS"]!;
/** Why a test is skipped over a real daemon, or false. */
export const MOCK_ONLY = BASE_URL === undefined ? false : "needs the mock";

export interface Stage {
  browser: Browser;
  base: string;
  mock: Mock | null;
  close: () => Promise<void>;
}

export async function stage(options: { volumes?: number; auth?: boolean } = {}): Promise<Stage> {
  const browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const mock = BASE_URL === undefined ? new Mock({ dist: join(ROOT, "dist"), ...options }) : null;
  const base = mock ? await mock.start() : BASE_URL!.replace(/\/?$/, "/");
  const close = async (): Promise<void> => {
    await browser.close();
    await mock?.stop();
  };
  return { browser, base, mock, close };
}

export interface View {
  width?: number;
  height?: number;
  scheme?: "light" | "dark";
}

/** What goes wrong in a page without anybody noticing. */
export class Watched {
  readonly complaints: string[] = [];

  constructor(readonly page: Page, readonly context: BrowserContext) {
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => this.complaints.push(`${error.message} ${error.stack ?? ""}`));
  }

  /** Ends with a failure if the page complained of anything but `allowed`. */
  async done(allowed?: RegExp): Promise<void> {
    await this.context.close();
    assert.deepEqual(this.complaints.filter((text) => !allowed?.test(text)), [], "the browser's console");
  }
}

/** A page of its own, logged in if a token is given. */
export async function open(stage: Stage, hash = "#/", view: View = {}): Promise<Watched> {
  const context = await stage.browser.newContext({
    viewport: { width: view.width ?? 1400, height: view.height ?? 900 },
    colorScheme: view.scheme ?? "light",
    reducedMotion: "reduce",
    // A daemon makes its own certificate.
    ignoreHTTPSErrors: true,
  });
  // Far longer than anything takes, on a busy machine too.
  context.setDefaultTimeout(120_000);
  const page = await context.newPage();
  const watched = new Watched(page, context);
  await page.goto(stage.base + hash);
  if (TOKEN !== undefined) {
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator(".frame main h1").waitFor();
    // That nobody was logged in at first is what the browser complained of.
    watched.complaints.length = 0;
  }
  await page.locator("main h1").waitFor();
  return watched;
}

/** Logged in with a token that may only look. */
export async function openViewOnly(stage: Stage): Promise<Watched> {
  const watched = await open(stage);
  await watched.page.getByLabel("Token").fill("view-token");
  await watched.page.getByRole("button", { name: "Log in" }).click();
  await watched.page.locator(".frame main h1").waitFor();
  watched.complaints.length = 0;
  return watched;
}

/** Waits until the page shows what the stream brings. */
export async function live(page: Page): Promise<void> {
  await page.locator(".frame:not(.stale)").waitFor();
}

export async function shot(page: Page, name: string, fullPage = true): Promise<void> {
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage });
}

const AXE = readFileSync(createRequire(join(ROOT, "package.json")).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  help: string;
  nodes: { html: string; failureSummary?: string }[];
}

/** Violations of WCAG 2 A and AA, in words. The checker comes in by the debugger's door: the page's own policy admits no foreign script. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const found = (await page.evaluate(
    "axe.run(document, { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] } }).then((result) => result.violations)",
  )) as Violation[];
  return found.flatMap((violation) => violation.nodes.map((node) => `${violation.id}: ${violation.help}: ${node.html.slice(0, 160)} ${node.failureSummary ?? ""}`));
}
