/** What the setup flow is about to do, as data: checked step by step, told in words, and turned into calls. */

import { exportSentence } from "../words/exports";
import { exportsOf, offerProblems, type Offer } from "../words/offer";
import { listed, SHARE_PORTS, SHARE_TITLES } from "../words/shares";
import type { DeviceView, Mode, PoolCreate, PoolView, VolumeAdd } from "../api";
import type { ShareAdd, ShareProtocol } from "../api-access";
import { bytes } from "../format";
import { nameProblem, size } from "../parse";
import { MODES } from "../words/modes";

export interface Plan extends Offer {
  /** A pool that exists, or "" for a new one. */
  pool: string;
  /** How the new pool's SSD is chosen. */
  ssdBy: "device" | "file";
  ssdDevice: DeviceView | null;
  ssdPath: string;
  ssdSize: string;
  /** What the daemon says of the typed path; null for a file that is not there yet. */
  ssdExamined: DeviceView | null;
  poolName: string;
  ram: string;
  backingBy: "device" | "path";
  backingDevice: DeviceView | null;
  backingPath: string;
  backingExamined: DeviceView | null;
  name: string;
  mode: Mode;
  /** Shared with other machines by that protocol; "" if not. */
  share: ShareProtocol | "";
  shareAddresses: string;
  shareInitiators: string;
  /** The person agrees to what is destroyed. */
  agreed: boolean;
}

export const FRESH: Plan = {
  pool: "",
  ssdBy: "device",
  ssdDevice: null,
  ssdPath: "",
  ssdSize: "",
  ssdExamined: null,
  poolName: "fast",
  ram: "256MiB",
  backingBy: "device",
  backingDevice: null,
  backingPath: "",
  backingExamined: null,
  name: "",
  mode: "write-through",
  block: true,
  vhostUser: false,
  nbd: false,
  nbdPort: "",
  tlsAddress: "",
  share: "",
  shareAddresses: "",
  shareInitiators: "",
  agreed: false,
};

/** The name that stays the same over restarts, where there is one. */
const steady = (device: DeviceView): string => device.stable_path ?? device.path;

export const ssdPath = (plan: Plan): string => (plan.ssdBy === "device" ? (plan.ssdDevice ? steady(plan.ssdDevice) : "") : plan.ssdPath.trim());
export const backingPath = (plan: Plan): string => (plan.backingBy === "device" ? (plan.backingDevice ? steady(plan.backingDevice) : "") : plan.backingPath.trim());
export const ssdView = (plan: Plan): DeviceView | null => (plan.ssdBy === "device" ? plan.ssdDevice : plan.ssdExamined);
export const backingView = (plan: Plan): DeviceView | null => (plan.backingBy === "device" ? plan.backingDevice : plan.backingExamined);

/** What would be lost, as a sentence; null if nothing is known to be there. */
export const destroys = (plan: Plan): string | null => (plan.pool === "" ? (ssdView(plan)?.destroys ?? null) : null);

export const STEPS = ["SSD", "Slow disk", "Volume", "Review"] as const;

/** What keeps a step from being done, by field. */
export function problems(plan: Plan, step: number, pools: PoolView[], volumes: string[]): Record<string, string> {
  const found: Record<string, string> = {};
  const note = (field: string, problem: string | undefined): void => {
    if (problem !== undefined) found[field] = problem;
  };
  if (step === 0 && plan.pool === "") {
    note("poolName", nameProblem(plan.poolName) ?? (pools.some((pool) => pool.name === plan.poolName) ? "there is a pool of this name" : undefined));
    note("ram", size(plan.ram).problem);
    if (plan.ssdBy === "device") note("ssd", plan.ssdDevice ? undefined : "pick a disk, or name a file");
    else {
      note("ssd", plan.ssdPath.trim().startsWith("/") ? undefined : "write the whole path, beginning with /");
      if (plan.ssdSize.trim() !== "") note("ssdSize", size(plan.ssdSize).problem);
    }
  }
  if (step === 1) {
    if (plan.backingBy === "device") note("backing", plan.backingDevice ? undefined : "pick a disk, or name a path");
    else note("backing", /^(\/|model:[^:]+:\/)/.test(plan.backingPath.trim()) ? undefined : "write the whole path, beginning with /, or model:SET:/FILE");
    if (plan.pool === "" && backingPath(plan) !== "" && backingPath(plan) === ssdPath(plan)) note("backing", "that is the SSD; pick another disk");
  }
  if (step === 2) {
    note("name", nameProblem(plan.name) ?? (volumes.includes(plan.name) ? "there is a volume of this name" : undefined));
    Object.assign(found, offerProblems(plan));
    if (exportsOf(plan).length === 0) note("exports", "choose at least one way, or nothing can use the volume");
  }
  if (step === 2 && plan.share !== "") {
    note("share", plan.block ? undefined : "only a block device can be shared: choose it above");
    const away = listed(plan.shareAddresses).some((address) => !/^(127\.|\[?::1)/.test(address));
    note("shareInitiators", away && listed(plan.shareInitiators).length === 0 ? "name those that may connect; to allow all, share it from the volume's page" : undefined);
  }
  if (step === 3 && destroys(plan) !== null && !plan.agreed) note("agreed", "agree to what is destroyed");
  return found;
}

export function poolBody(plan: Plan): PoolCreate | null {
  if (plan.pool !== "") return null;
  const typed = plan.ssdBy === "file" ? size(plan.ssdSize).value : undefined;
  return {
    name: plan.poolName,
    ssd: ssdPath(plan),
    ...(typed === undefined ? {} : { size_bytes: typed }),
    ...(size(plan.ram).value === undefined ? {} : { ram_bytes: size(plan.ram).value! }),
    force: destroys(plan) !== null && plan.agreed,
  };
}

export function volumeBody(plan: Plan): VolumeAdd {
  return { name: plan.name, pool: plan.pool || plan.poolName, backing: backingPath(plan), exports: exportsOf(plan), options: { mode: plan.mode } };
}

/** The share of the new volume, if there is to be one. */
export function shareBody(plan: Plan): ShareAdd | null {
  if (plan.share === "") return null;
  return { protocol: plan.share, addresses: listed(plan.shareAddresses), initiators: listed(plan.shareInitiators) };
}

/** Exactly what will be done, one sentence each. */
export function review(plan: Plan): { text: string; grave: boolean }[] {
  const lines: { text: string; grave: boolean }[] = [];
  const plain = (text: string): void => void lines.push({ text, grave: false });
  if (plan.pool === "") {
    const lost = destroys(plan);
    if (lost !== null) lines.push({ text: lost, grave: true });
    const typed = plan.ssdBy === "file" ? size(plan.ssdSize).value : undefined;
    const fresh = plan.ssdBy === "file" && plan.ssdExamined === null;
    plain(`${fresh ? `The file ${ssdPath(plan)} of ${bytes(typed ?? 0)} is made and` : ssdPath(plan)} becomes the SSD of the new pool ${plan.poolName}${!fresh && typed !== undefined ? `, ${bytes(typed)} of it` : ""}, with ${bytes(size(plan.ram).value ?? 0)} of RAM in front.`);
  } else plain(`The pool ${plan.pool} caches the volume; nothing on its SSD is destroyed.`);
  const backing = backingView(plan);
  plain(`${backingPath(plan)}${backing ? ` (${bytes(backing.size_bytes)}, ${backing.summary})` : ""} becomes the slow disk of the volume ${plan.name}. Nothing on it is changed by this; from now on it is used through the volume only.`);
  plain(`Mode ${plan.mode}. ${MODES[plan.mode].about} ${MODES[plan.mode].loss}`);
  for (const way of exportsOf(plan)) {
    plain(exportSentence(way, plan.name));
  }
  const share = shareBody(plan);
  if (share) {
    const at = (share.addresses ?? []).join(" and ") || `127.0.0.1:${SHARE_PORTS[share.protocol]}`;
    const who = (share.initiators ?? []).join(" and ") || "every initiator on this machine";
    plain(`It is shared by ${SHARE_TITLES[share.protocol]} at ${at} with ${who}. Do not mount it on this machine then.`);
  }
  return lines;
}
