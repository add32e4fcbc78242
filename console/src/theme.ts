/** Light or dark: as the system has it, or as chosen here and remembered. Canvases ask for colours by name. */

import { computed, effect, signal } from "@preact/signals";
import { recall, remember } from "./memory";

export type Choice = "auto" | "light" | "dark";

const stored = recall("theme");
export const choice = signal<Choice>(stored === "light" || stored === "dark" ? stored : "auto");
const system = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system?.matches ?? false);

export const dark = computed(() => (choice.value === "auto" ? systemDark.value : choice.value === "dark"));

const NAMES = [
  "text", "muted", "line", "surface", "accent", "blue", "orange", "green", "purple", "teal", "red", "grey", "heat-0", "heat-1", "heat-2", "cached", "dirty", "cell",
] as const;
export type Colour = (typeof NAMES)[number];

/** Colours of canvases in the present theme. */
export const palette = signal<Record<Colour, string>>(Object.fromEntries(NAMES.map((name) => [name, "#888"])) as Record<Colour, string>);

/** Follows the system and the choice from now on. */
export function follow(): void {
  system?.addEventListener("change", (event) => (systemDark.value = event.matches));
  effect(() => {
    document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    palette.value = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Record<Colour, string>;
  });
  effect(() => remember("theme", choice.value));
}
