/** Shares with other machines: the words of the command line (`hearth share`), and their names for people. */

import type { VolumeView } from "../api";
import type { ShareProtocol, ShareView } from "../api-access";
import type { Tone } from "./health";

export const SHARE_TITLES: Record<ShareProtocol, string> = { iscsi: "iSCSI", "nvme-tcp": "NVMe/TCP" };
export const SHARE_PORTS: Record<ShareProtocol, number> = { iscsi: 3260, "nvme-tcp": 4420 };
export const INITIATOR_EXAMPLES: Record<ShareProtocol, string> = { iscsi: "iqn.1993-08.org.debian:01:abc", "nvme-tcp": "nqn.2014-08.org.nvmexpress:uuid:…" };

/** Words of a field: one on each line, or with blanks or commas between. */
export const listed = (text: string): string[] => text.split(/[\s,]+/).filter((word) => word !== "");

/** As `hearth share show` has it. */
export const servedBy = (server: string): string => ({ lio: "the kernel (LIO)", nvmet: "the kernel (nvmet)" })[server] ?? server;

/** What to know of initiators before a share is removed. */
export function whoIsConnected(connected: string[] | null | undefined): string {
  if (connected == null) return "Whether initiators are connected is not known. Log out everywhere first.";
  return connected.length > 0 ? `Connected: ${connected.join(", ")}. Log out there first.` : "No initiator is connected.";
}

/** Protocols by which it is not shared yet. */
export const protocolsFree = (shares: ShareView[]): ShareProtocol[] =>
  (Object.keys(SHARE_TITLES) as ShareProtocol[]).filter((protocol) => !shares.some((share) => share.protocol === protocol));

/** The block device that a share would offer; only what has one can be shared. */
export const deviceOf = (of: Pick<VolumeView, "exports" | "stable_path">): string | undefined =>
  of.stable_path ?? Object.values(of.exports).find((place) => place?.startsWith("/dev/")) ?? undefined;

/** Whether something more of it can be shared now. */
export const canBeShared = (of: Pick<VolumeView, "health" | "exports" | "stable_path" | "shares">): boolean =>
  of.health !== "removing" && deviceOf(of) !== undefined && protocolsFree(of.shares ?? []).length > 0;

/** Whether initiators find it. */
export function shareState({ device, problem }: ShareView): { tone: Tone; word: string } {
  if (device) return problem ? { tone: "warn", word: "offered, state unknown" } : { tone: "good", word: "offered" };
  return problem ? { tone: "bad", word: "not offered" } : { tone: "busy", word: "not offered just now" };
}

/** Who may connect. */
export const mayConnect = ({ initiators }: ShareView): string => (initiators.length === 0 ? "all" : initiators.join(", "));

/** Who is connected; never "none" where that is not known. */
export const connectedTold = ({ connected }: ShareView): string =>
  connected == null ? "unknown" : connected.length === 0 ? "none" : connected.join(", ");

/** An initiator, and whether it is connected; null: that is not known. */
export interface Initiator {
  name: string;
  connected: boolean | null;
}

/** Those that may connect by their name, and those that are connected. */
export function initiatorsOf({ initiators, connected }: ShareView): Initiator[] {
  const others = (connected ?? []).filter((name) => !initiators.includes(name));
  return [...initiators, ...others].map((name) => ({ name, connected: connected == null ? null : connected.includes(name) }));
}
