/** Where a volume is offered and how to use it. */

import type { OnRestart, VolumeView } from "../api";
import { Copy, Panel } from "../ui/basics";
import { exportName, isDevice } from "../words/exports";

const WHILE_RESTARTING: Record<OnRestart, string> = {
  waits: "I/O waits",
  waits_if_killed: "I/O waits if it is killed; a stop ends the device",
  writes_fail: "I/O waits, writes under way fail if the daemon is killed",
  waits_if_restarted: "I/O waits; if the daemon is killed, clients must connect again",
  waits_if_reconnected: "I/O waits, if the virtual machine is set to reconnect",
  ends: "clients must connect again",
};

/** A command that uses the volume at a place, by the kind of export. */
export function commands(volume: { name: string; exports: Record<string, string | null>; stable_path: string | null }): { told: string; text: string }[] {
  const device = volume.stable_path ?? Object.entries(volume.exports).find(([word, place]) => isDevice(word) && place)?.[1];
  const found: { told: string; text: string }[] = [];
  if (device) {
    found.push({ told: "If it holds a file system, mount it", text: `mount ${device} /mnt` });
    found.push({ told: "If it is empty, make one first (this erases the volume)", text: `mkfs.ext4 ${device}` });
  }
  for (const [word, place] of Object.entries(volume.exports)) {
    if (!word.startsWith("nbd") || !place) continue;
    if (word.startsWith("nbds:")) {
      found.push({ told: "A client with a certificate (hearth pki issue NAME) uses it", text: `nbdinfo '${place}?tls-certificates=DIRECTORY'` });
      continue;
    }
    found.push({ told: "A virtual machine uses it directly", text: `qemu-system-x86_64 -drive file=${place.includes("?") ? `'${place}'` : place},format=raw,if=virtio` });
  }
  return found;
}

/** What a volume and a disk tell of how they are offered. */
type Offered = Pick<VolumeView, "name" | "exports" | "on_restart" | "export_notes" | "stable_path">;

/** Where it is offered, as entries of a list. */
export function Places({ of }: { of: Offered }) {
  return (
    <>
      {Object.entries(of.exports).map(([word, place]) => (
        <div key={word}>
          <dt>{exportName(word)}</dt>
          <dd>
            {place ? <Copy text={place} /> : <span class="muted">not offered just now</span>}
            {of.export_notes?.[word] && <p class="muted">{of.export_notes[word]}</p>}
            {of.on_restart[word] && <p class="muted">While the daemon restarts: {WHILE_RESTARTING[of.on_restart[word]]}</p>}
          </dd>
        </div>
      ))}
      {of.stable_path && (
        <div><dt>Name that stays</dt><dd><Copy text={of.stable_path} /></dd></div>
      )}
    </>
  );
}

export function Use({ volume }: { volume: VolumeView }) {
  const places = Object.entries(volume.exports);
  if (volume.attached_to) {
    return (
      <Panel title="Where it is offered" id="use">
        <dl class="places">
          <div><dt>Attached live to</dt><dd><code>{volume.attached_to}</code></dd></div>
        </dl>
        <p class="muted">Whoever uses {volume.attached_to} uses this volume. To end that, without unmounting anything:</p>
        <Copy text={`hearth detach ${volume.name}`} />
      </Panel>
    );
  }
  return (
    <Panel title="Where it is offered" id="use">
      {places.length === 0 && <p class="calm">It has no export: nothing can use it yet. Remove it and set it up anew with one.</p>}
      <dl class="places">
        <Places of={volume} />
        <div><dt>Backing device</dt><dd><code>{volume.backing}</code></dd></div>
      </dl>
      {places.length > 0 && (
        <details>
          <summary>How to use it</summary>
          <ul class="commands">{commands(volume).map(({ told, text }) => <li key={text}><span>{told}</span><Copy text={text} /></li>)}</ul>
          <p class="muted">Use the volume, never {volume.backing} itself: hearth must see every change.</p>
        </details>
      )}
    </Panel>
  );
}
