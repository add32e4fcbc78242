/** Shares that the mock makes, and those it has from the start. */

import type { ShareAdd, ShareView, TokenView } from "../src/api-access";

export function shared(volume: string, uuid: string, add: ShareAdd): ShareView {
  const iscsi = add.protocol === "iscsi";
  return {
    volume,
    protocol: add.protocol,
    target: iscsi ? `iqn.2003-01.org.linux-iscsi.hearth:${uuid}` : `nqn.2014-08.org.nvmexpress:uuid:${uuid}`,
    serial: uuid,
    wwn: iscsi ? `naa.6001405${uuid.replace(/-/g, "").slice(0, 25)}` : `uuid.${uuid}`,
    addresses: (add.addresses ?? []).length > 0 ? add.addresses! : [`127.0.0.1:${iscsi ? 3260 : 4420}`],
    initiators: add.initiators ?? [],
    chap_file: add.chap_file ?? null,
    device: "/dev/loop0",
    server: iscsi ? "lio" : "nvmet",
    limits: [],
    connected: [],
    problem: null,
    remedy: null,
  };
}

/** Of volumes, by name: one that is in use, one whose target is gone. */
export function firstShares(volume: string, uuid: string): ShareView[] {
  switch (volume) {
    case "mail": {
      const initiators = ["iqn.1993-08.org.debian:01:mail-a", "iqn.1993-08.org.debian:01:mail-b"];
      const share = shared(volume, uuid, { protocol: "iscsi", addresses: ["192.0.2.1:3260"], initiators, chap_file: "/etc/hearth/chap-mail" });
      return [{ ...share, connected: initiators.slice(0, 1) }];
    }
    case "archive": {
      const share = shared(volume, uuid, { protocol: "nvme-tcp", addresses: ["192.0.2.1:4420"], any_initiator: true });
      return [{ ...share, device: null, server: null, connected: null, problem: "the kernel has no NVMe target", remedy: "load it with modprobe nvmet" }];
    }
    default:
      return [];
  }
}

export const firstTokens = (): TokenView[] => [
  { name: "admin", role: "operate", created_unix_s: 1_751_364_000 },
  { name: "prometheus", role: "view", created_unix_s: 1_751_450_400 },
  { name: "wall-screen", role: "view", created_unix_s: 1_754_042_400 },
];
