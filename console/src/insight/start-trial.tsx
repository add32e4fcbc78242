/** What is asked before an untouched device is watched. */

import { useEffect, useState } from "preact/hooks";
import type { AnalysisStart, AnalysisView, DeviceView } from "../api";
import { span } from "../format";
import { nameProblem, time } from "../parse";
import { ApiError, get, post } from "../rest";
import { go } from "../route";
import { Devices } from "../setup/devices";
import { Trouble } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Text } from "../ui/form";
import { toast } from "../ui/toast";

/** The daemon's bounds: a second, and 31 days. */
const FOR_MS_MAX = 31 * 24 * 3_600_000;

/** What is typed as the time; nothing typed: until it is stopped. */
export function trialTime(
  text: string,
): ReturnType<typeof time> | { value: null; problem?: undefined } {
  if (text.trim() === "") return { value: null };
  const parsed = time(text);
  if (parsed.value !== undefined && (parsed.value < 1000 || parsed.value > FOR_MS_MAX))
    return { problem: "write a time from 1s to 744h (31 days)" };
  return parsed;
}

export function StartTrial({ taken, onClose }: { taken: string[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [text, setText] = useState("1h");
  const [device, setDevice] = useState<DeviceView | null>(null);
  const [devices, setDevices] = useState<DeviceView[] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    get<DeviceView[]>("/devices").then(
      setDevices,
      (thrown: unknown) => thrown instanceof ApiError && setError(thrown),
    );
  }, []);
  const wrongName =
    nameProblem(name) ??
    (taken.includes(name) ? "something is watched under this name" : undefined);
  const parsed = trialTime(text);
  const confirm = async (): Promise<void> => {
    const body: AnalysisStart = {
      name,
      device: device!.path,
      ...(parsed.value === null ? {} : { for_ms: parsed.value! }),
    };
    const begun = await post<AnalysisView>("/analyses", body);
    toast({ kind: "done", title: `${begun.of} is watched`, detail: "nothing is written to it" });
    go({ page: "analysis", name: begun.name });
  };
  return (
    <Dialog
      title="Start a trial"
      confirm="Watch it"
      ready={wrongName === undefined && device !== null && parsed.problem === undefined}
      onConfirm={confirm}
      onClose={onClose}
    >
      <div class="inline-fields">
        <Text
          label="Name of the trial"
          value={name}
          placeholder="trial"
          wrong={name === "" ? undefined : wrongName}
          hint="letters, digits, . _ -"
          onText={setName}
        />
        <Text
          label="For how long"
          value={text}
          placeholder="24h"
          wrong={parsed.problem}
          hint="empty: until you stop it"
          onText={setText}
        />
      </div>
      <fieldset class="choices">
        <legend>Which device?</legend>
        {error ? (
          <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />
        ) : devices === null ? (
          <p class="calm">Looking for disks…</p>
        ) : devices.length === 0 ? (
          <p class="calm">No disk was found.</p>
        ) : (
          <Devices
            devices={devices}
            purpose="watch"
            chosen={device}
            taken={null}
            onChoose={setDevice}
          />
        )}
      </fieldset>
      <Meaning
        sentences={[
          "The requests to the device are watched from outside, while it is in use.",
          "Nothing is written to it. It is read for the names of databases and tables, slowly and past the page cache.",
          "What the page cache of this machine answers does not reach the device, and is not seen.",
          parsed.value == null
            ? "It ends when you stop it."
            : `It ends by itself after ${span(parsed.value / 1000)}, or when you stop it.`,
          "What it found stays until you forget it, or the daemon is restarted.",
        ]}
      />
    </Dialog>
  );
}
