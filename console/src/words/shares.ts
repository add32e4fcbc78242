/** Shares with other machines: the words of the command line (`hearth share`), and their names for people. */

import type { ShareProtocol } from "../api";

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
