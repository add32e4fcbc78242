/** The four steps of the setup flow. */

import type { ComponentChildren } from "preact";
import type { DeviceView, Mode, PoolView } from "../api";
import type { ShareProtocol } from "../api-access";
import { bytes, counted } from "../format";
import { MODES, MODE_NAMES } from "../words/modes";
import { INITIATOR_EXAMPLES, SHARE_PORTS, SHARE_TITLES } from "../words/shares";
import { Offered, Text } from "../ui/form";
import { Devices } from "./devices";
import { destroys, review, ssdPath, type Plan } from "./plan";
import { href } from "../route";

export interface StepProps {
  plan: Plan;
  set: (part: Partial<Plan>) => void;
  wrong: Record<string, string>;
  devices: DeviceView[] | null;
  pools: PoolView[];
}

function Choice({ name, checked, title, children, onChoose }: { name: string; checked: boolean; title: string; children?: ComponentChildren; onChoose: () => void }) {
  return (
    <label class="choice">
      <input type="radio" name={name} checked={checked} onChange={onChoose} />
      <span><strong>{title}</strong>{children && <span class="under">{children}</span>}</span>
    </label>
  );
}

export function SsdStep({ plan, set, wrong, devices, pools }: StepProps) {
  const usable = pools.filter((pool) => pool.health === "running");
  return (
    <>
      <p class="lead">The SSD holds the cache. What is on it is replaced; several volumes may share it.</p>
      {usable.length > 0 && (
        <fieldset class="choices">
          <legend>Which pool?</legend>
          {usable.map((pool) => (
            <Choice key={pool.name} name="pool" checked={plan.pool === pool.name} title={`Use the pool ${pool.name}`} onChoose={() => set({ pool: pool.name })}>
              {bytes(pool.size_bytes)} on {pool.ssd}, {counted(pool.volumes.length, "volume")} so far
            </Choice>
          ))}
          <Choice name="pool" checked={plan.pool === ""} title="Make a new pool" onChoose={() => set({ pool: "" })}>on another SSD</Choice>
        </fieldset>
      )}
      {plan.pool === "" && (
        <>
          <fieldset class="choices row">
            <legend>Where does its cache live?</legend>
            <Choice name="ssdBy" checked={plan.ssdBy === "device"} title="On a disk or partition" onChoose={() => set({ ssdBy: "device" })} />
            <Choice name="ssdBy" checked={plan.ssdBy === "file"} title="In a file, or another path" onChoose={() => set({ ssdBy: "file" })} />
          </fieldset>
          {plan.ssdBy === "device" ? (
            <DeviceList devices={devices}><Devices devices={devices ?? []} purpose="ssd" chosen={plan.ssdDevice} taken={null} onChoose={(ssdDevice) => set({ ssdDevice, agreed: false })} /></DeviceList>
          ) : (
            <div class="inline-fields">
              <Text label="Path" value={plan.ssdPath} placeholder="/srv/cache.img" wrong={wrong["ssd"]} hint="a file that is not there is made" onText={(ssdPath) => set({ ssdPath, ssdExamined: null, agreed: false })} />
              <Text label="Size" value={plan.ssdSize} placeholder="20GiB" wrong={wrong["ssdSize"]} hint="needed for a new file; else empty: all of it" onText={(ssdSize) => set({ ssdSize })} />
            </div>
          )}
          {plan.ssdBy === "device" && wrong["ssd"] && <p class="wrong" role="alert">{wrong["ssd"]}</p>}
          <div class="inline-fields">
            <Text label="Name of the pool" value={plan.poolName} wrong={wrong["poolName"]} hint="letters, digits, . _ -" onText={(poolName) => set({ poolName })} />
            <Text label="RAM in front of it" value={plan.ram} wrong={wrong["ram"]} hint="taken from this machine; 0: none" onText={(ram) => set({ ram })} />
          </div>
        </>
      )}
    </>
  );
}

function DeviceList({ devices, children }: { devices: DeviceView[] | null; children: ComponentChildren }) {
  if (devices === null) return <p class="calm">Looking for disks…</p>;
  if (devices.length === 0) return <p class="calm">No disk was found. Name a path instead.</p>;
  return <>{children}</>;
}

export function BackingStep({ plan, set, wrong, devices }: StepProps) {
  return (
    <>
      <p class="lead">The slow disk keeps your data, where it always was. Nothing on it is reformatted.</p>
      <fieldset class="choices row">
        <legend>Which slow disk?</legend>
        <Choice name="backingBy" checked={plan.backingBy === "device"} title="A disk or partition" onChoose={() => set({ backingBy: "device" })} />
        <Choice name="backingBy" checked={plan.backingBy === "path"} title="A file, or another path" onChoose={() => set({ backingBy: "path" })} />
      </fieldset>
      {plan.backingBy === "device" ? (
        <>
          <DeviceList devices={devices}><Devices devices={devices ?? []} purpose="backing" chosen={plan.backingDevice} taken={plan.pool === "" && plan.ssdBy === "device" ? (plan.ssdDevice?.path ?? null) : null} onChoose={(backingDevice) => set({ backingDevice })} /></DeviceList>
          {wrong["backing"] && <p class="wrong" role="alert">{wrong["backing"]}</p>}
        </>
      ) : (
        <Text label="Path" value={plan.backingPath} placeholder="/srv/disk.img" wrong={wrong["backing"]} hint={<>a device or file; or <code>model:7k2:/srv/disk.img</code>, a modelled hard disk over a file, to try things out</>} onText={(backingPath) => set({ backingPath, backingExamined: null })} />
      )}
    </>
  );
}

export function VolumeStep({ plan, set, wrong }: StepProps) {
  return (
    <>
      <Text label="Name of the volume" value={plan.name} placeholder="data" wrong={wrong["name"]} hint="letters, digits, . _ -" onText={(name) => set({ name })} />
      <fieldset class="choices">
        <legend>What does an acknowledged write mean? (It can be changed at any time.)</legend>
        {MODE_NAMES.map((mode: Mode) => (
          <Choice key={mode} name="mode" checked={plan.mode === mode} title={mode} onChoose={() => set({ mode })}>{MODES[mode].about} {MODES[mode].loss}</Choice>
        ))}
      </fieldset>
      <Offered of={plan} set={set} wrong={wrong} />
      {wrong["exports"] && <p class="wrong" role="alert">{wrong["exports"]}</p>}
      <fieldset class="choices row">
        <legend>Is its block device shared with other machines?</legend>
        <Choice name="share" checked={plan.share === ""} title="No" onChoose={() => set({ share: "" })} />
        {(Object.keys(SHARE_TITLES) as ShareProtocol[]).map((protocol) => <Choice key={protocol} name="share" checked={plan.share === protocol} title={SHARE_TITLES[protocol]} onChoose={() => set({ share: protocol })} />)}
      </fieldset>
      {wrong["share"] && <p class="wrong" role="alert">{wrong["share"]}</p>}
      {plan.share !== "" && (
        <>
          <Text label="Addresses of this machine to listen on (empty: 127.0.0.1)" value={plan.shareAddresses} placeholder={`192.0.2.1 or 192.0.2.1:${SHARE_PORTS[plan.share]}`} hint="several give several paths" onText={(shareAddresses) => set({ shareAddresses })} />
          <Text label="Initiators that may connect" value={plan.shareInitiators} placeholder={INITIATOR_EXAMPLES[plan.share]} wrong={wrong["shareInitiators"]} hint="CHAP: share it from the volume's page" onText={(shareInitiators) => set({ shareInitiators })} />
        </>
      )}
    </>
  );
}

export function ReviewStep({ plan, set, wrong }: StepProps) {
  const lost = destroys(plan);
  return (
    <>
      <p class="lead">This is what will be done, and nothing else:</p>
      <ol class="review">
        {review(plan).map(({ text, grave }) => <li key={text} class={grave ? "grave" : ""}>{grave && <strong>Destroyed: </strong>}{text}</li>)}
      </ol>
      {lost !== null && (
        <label class="check grave">
          <input type="checkbox" checked={plan.agreed} aria-describedby="agree-hint" onChange={(event) => set({ agreed: event.currentTarget.checked })} />
          <span>Destroy what is on {ssdPath(plan)}: {lost}<span class="under" id="agree-hint">{wrong["agreed"] && <span class="wrong">{wrong["agreed"]}</span>}</span></span>
        </label>
      )}
      {plan.mode === "write-back" && <p class="muted">Write-back has one copy of new data on the SSD for a while; the <a href={href({ page: "overview" })}>overview</a> shows how much.</p>}
    </>
  );
}
