/** Where we are, by the part of the address behind the `#`. */

import { signal } from "@preact/signals";

export type Route =
  | { page: "overview" }
  | { page: "volume"; name: string }
  | { page: "pool"; name: string }
  | { page: "pools" }
  | { page: "access" }
  | { page: "jobs" }
  | { page: "events" }
  | { page: "setup" }
  | { page: "advice"; name?: string }
  | { page: "analysis"; name: string }
  | { page: "apps"; volume?: string; id?: number }
  | { page: "object"; volume: string; id: number }
  | { page: "unknown" };

/** Reads an address's hash. */
export function parse(hash: string): Route {
  if (loginCode(hash) !== null) return { page: "overview" };
  const parts = hash.replace(/^#?\/?/, "").split("?")[0]!.split("/").filter((part) => part !== "");
  const [page, name] = parts;
  if (page === undefined) return { page: "overview" };
  if (page === "apps" && name === undefined) return { page };
  if ((page === "apps" || page === "object") && name !== undefined && parts.length === 3 && /^\d{1,10}$/.test(parts[2]!)) return { page, volume: decode(name), id: Number(parts[2]) };
  if (parts.length > 2) return { page: "unknown" };
  if ((page === "volume" || page === "pool" || page === "advice" || page === "analysis") && name !== undefined) return { page, name: decode(name) };
  if (name === undefined && (page === "access" || page === "jobs" || page === "events" || page === "setup" || page === "pools" || page === "advice")) return { page };
  return { page: "unknown" };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The hash of a route. */
export function href(route: Route): string {
  switch (route.page) {
    case "overview":
    case "unknown":
      return "#/";
    case "volume":
    case "pool":
    case "analysis":
      return `#/${route.page}/${encodeURIComponent(route.name)}`;
    case "advice":
      return route.name === undefined ? "#/advice" : `#/advice/${encodeURIComponent(route.name)}`;
    case "apps":
    case "object":
      return route.volume === undefined ? "#/apps" : `#/${route.page}/${encodeURIComponent(route.volume)}/${route.id}`;
    default:
      return `#/${route.page}`;
  }
}

/** What stands in the title bar. */
export function title(route: Route): string {
  switch (route.page) {
    case "overview":
      return "Overview";
    case "volume":
      return `Volume ${route.name}`;
    case "pool":
      return `Pool ${route.name}`;
    case "pools":
      return "Pools";
    case "access":
      return "Shares and tokens";
    case "jobs":
      return "Jobs";
    case "events":
      return "Events";
    case "setup":
      return "Set up a volume";
    case "advice":
      return route.name === undefined ? "Advice" : `Advice for ${route.name}`;
    case "analysis":
      return `Analysis ${route.name}`;
    case "apps":
      return route.volume === undefined ? "Applications" : `Applications on ${route.volume}`;
    case "object":
      return `Object ${route.id} of ${route.volume}`;
    case "unknown":
      return "Nothing here";
  }
}

/** The code of a login address (`#code=…`), if there is one. */
export function loginCode(hash: string): string | null {
  return /^#code=([^&]+)/.exec(hash)?.[1] ?? null;
}

export const route = signal<Route>(parse(typeof location === "undefined" ? "" : location.hash));

/** Goes there. */
export function go(to: Route): void {
  location.hash = href(to).slice(1);
}

/** Follows the address from now on. */
export function follow(): void {
  addEventListener("hashchange", () => {
    route.value = parse(location.hash);
    scrollTo(0, 0);
  });
}
