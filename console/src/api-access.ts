/** The words of the REST API for shares and tokens, who may come in from outside; see `api.ts`. */

import type { Role } from "./api";

export type ShareProtocol = "iscsi" | "nvme-tcp";

export interface ShareView {
  /** The volume or disk. */
  volume: string;
  protocol: ShareProtocol;
  /** An IQN or an NQN. */
  target: string;
  serial: string;
  wwn: string;
  addresses: string[];
  /** None: all. */
  initiators: string[];
  chap_file?: string | null;
  /** Null while it is not offered. */
  device?: string | null;
  /** "lio" or "nvmet" of the kernel, "tgt" where it has no iSCSI target; null while nothing serves it. */
  server?: string | null;
  /** What initiators do without there, a sentence each. */
  limits?: string[];
  /** Null: not known. */
  connected?: string[] | null;
  problem?: string | null;
  remedy?: string | null;
}

export interface ShareAdd {
  protocol: ShareProtocol;
  addresses?: string[];
  initiators?: string[];
  any_initiator?: boolean;
  chap_file?: string | null;
}

/** A token as it is listed: without its secret. */
export interface TokenView {
  name: string;
  role: Role;
  created_unix_s: number;
}

export interface TokenCreate {
  name: string;
  role: Role;
}

/** A token as it is shown once. */
export interface TokenMade {
  name: string;
  role: Role;
  token: string;
}
