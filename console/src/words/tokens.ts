/** Tokens, in words. */

import type { Role, SessionView } from "../api";
import type { TokenView } from "../api-access";

/** What its bearer may do, by role. */
export const ROLE_MEANS: Record<Role, string> = {
  view: "sees everything and changes nothing: for wall screens and Prometheus",
  operate: "may do everything, also remove volumes and create tokens",
};

/** Whether this session may have been begun with it: sessions and tokens are told by name. */
export const isOwn = (token: TokenView, session: SessionView | null): boolean =>
  session !== null && session.by !== "socket" && session.name === token.name;

/** What a revocation does. */
export function revoked(token: TokenView, session: SessionView | null): string[] {
  return [
    "Whoever uses it is refused from now on. Sessions of browsers that logged in with it end, and so do its event streams.",
    "It cannot be undone: who still needs access gets a new token.",
    ...(isOwn(token, session) ? ["You are logged in by this name: this session ends, too."] : []),
  ];
}
