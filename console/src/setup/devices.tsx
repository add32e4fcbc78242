/** The disks of this machine to choose from: each with what is on it, and why it cannot be used if it cannot. */

import type { DeviceState, DeviceView } from "../api";
import { bytes } from "../format";
import { Badge } from "../ui/basics";
import { Icon } from "../ui/icon";
import type { Tone } from "../words/health";

const STATES: Record<DeviceState, { tone: Tone; word: string }> = {
  free: { tone: "good", word: "free" },
  foreign: { tone: "warn", word: "holds data" },
  in_use: { tone: "busy", word: "in use" },
  pool: { tone: "busy", word: "pool of hearth" },
  backing: { tone: "busy", word: "used by hearth" },
};

interface Props {
  devices: DeviceView[];
  /** "watch": to look on from outside; what hearth itself uses is watched already. */
  purpose: "ssd" | "backing" | "watch";
  chosen: DeviceView | null;
  /** Chosen for something else already. */
  taken: string | null;
  onChoose: (device: DeviceView) => void;
}

/** Disks first, each followed by its partitions. */
export function treeOf(devices: DeviceView[]): { device: DeviceView; under: boolean }[] {
  const paths = new Set(devices.map((device) => device.path));
  const roots = devices.filter((device) => device.parent === null || !paths.has(device.parent));
  return roots.flatMap((device) => [{ device, under: false }, ...devices.filter((other) => other.parent === device.path).map((other) => ({ device: other, under: true }))]);
}

function usable(device: DeviceView, purpose: Props["purpose"]): boolean {
  if (purpose === "watch") return device.state !== "pool" && device.state !== "backing";
  return purpose === "ssd" ? device.can_be_ssd : device.can_be_backing;
}

export function Devices({ devices, purpose, chosen, taken, onChoose }: Props) {
  return (
    <ul class="devices">
      {treeOf(devices).map(({ device, under }) => {
        const able = usable(device, purpose) && device.path !== taken;
        const { tone, word } = STATES[device.state];
        const speed = device.rotational === null ? device.kind : device.rotational ? "hard disk" : "SSD";
        return (
          <li key={device.path} class={under ? "under-disk" : ""}>
            <label class={able ? "device" : "device off"}>
              <input type="radio" name={purpose} disabled={!able} checked={chosen?.path === device.path} onChange={() => onChoose(device)} />
              <Icon name="disk" />
              <span class="device-text">
                <strong>{device.path}</strong> {bytes(device.size_bytes)}
                <span class="under">{[device.model, device.kind === "disk" ? speed : device.kind, device.read_only ? "read-only" : null].filter(Boolean).join(" · ")}</span>
                <span class="under">{device.path === taken ? "chosen as the SSD" : device.summary}</span>
                {able && purpose === "ssd" && device.destroys && <span class="warn-text">{device.destroys}</span>}
              </span>
              <Badge tone={tone}>{word}</Badge>
            </label>
          </li>
        );
      })}
    </ul>
  );
}
