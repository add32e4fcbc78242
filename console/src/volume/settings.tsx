/** Settings in place: each change says what it means before it is made. */

import { useState } from "preact/hooks";
import type { Done, JobView, VolumeView } from "../api";
import { refreshVolumes, takeJob } from "../live/store";
import { liveVolume } from "../live/volumes";
import { patch, part } from "../rest";
import { Panel } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";
import type { Situation } from "../words/modes";
import { SETTINGS, type Setting } from "../words/settings";

export function Settings({ volume }: { volume: VolumeView }) {
  const [open, setOpen] = useState<Setting | null>(null);
  return (
    <Panel title="Settings" id="settings">
      <dl class="settings">
        {SETTINGS.map((setting) => (
          <div class="setting" key={setting.key}>
            <dt>{setting.word}<span class="under">{setting.about}</span></dt>
            <dd>
              <span>{setting.shown(volume.options)}</span>
              <Operate label={`Change ${setting.word.toLowerCase()}`} onClick={() => setOpen(setting)}>Change</Operate>
            </dd>
          </div>
        ))}
      </dl>
      {open && <Change setting={open} volume={volume} onClose={() => setOpen(null)} />}
    </Panel>
  );
}

export function Change({ setting, volume, onClose }: { setting: Setting; volume: VolumeView; onClose: () => void }) {
  const before = setting.typed(volume.options);
  const [text, setText] = useState(before);
  const sample = liveVolume(volume.name).sample.value;
  const now: Situation = {
    volume: volume.name,
    backing: volume.backing,
    options: volume.options,
    dirty_bytes: sample?.dirty_bytes ?? volume.dirty_bytes,
    written_bytes_s: sample?.written_bytes_s ?? null,
  };
  const parsed = setting.patch(text);
  const different = text.trim() !== before;
  const confirm = async (): Promise<void> => {
    const answer = await patch<JobView | Done>(`/volumes/${part(volume.name)}`, { options: parsed.value });
    if ("id" in answer) {
      takeJob(answer);
      toast({ kind: "done", title: `${setting.word} of ${volume.name}: in progress`, detail: "dirty data is destaged first; see the job" });
    } else toast({ kind: "done", title: `${setting.word} of ${volume.name} changed to ${text}` });
    await refreshVolumes();
  };
  const word = setting.word.toLowerCase();
  return (
    <Dialog
      title={`Change the ${word} of ${volume.name}`}
      confirm={setting.choices && different ? (setting.key === "read_only" ? (text === "yes" ? "Refuse all writes" : "Allow writes") : `Change to ${text}`) : `Change the ${word}`}
      ready={different && parsed.problem === undefined}
      onConfirm={confirm}
      onClose={onClose}
    >
      {setting.choices ? (
        <fieldset class="choices">
          <legend>{setting.about}</legend>
          {setting.choices.map((choice) => (
            <label key={choice.word} class="choice">
              <input type="radio" name="choice" value={choice.word} checked={text === choice.word} onChange={() => setText(choice.word)} />
              <span><strong>{choice.word}</strong>{choice.word === before && <span class="chip">now</span>}<span class="under">{choice.about}</span></span>
            </label>
          ))}
        </fieldset>
      ) : (
        <label class="field">
          <span>{setting.about}</span>
          <input value={text} spellcheck={false} autocomplete="off" aria-describedby="setting-hint" aria-invalid={parsed.problem !== undefined} onInput={(event) => setText(event.currentTarget.value)} />
          <span class="under" id="setting-hint">{parsed.problem ? <span class="wrong">{parsed.problem}</span> : `Now ${before}. Write ${setting.hint}.`}</span>
        </label>
      )}
      {parsed.problem === undefined && different && <Meaning sentences={setting.meaning(text, now)} />}
    </Dialog>
  );
}
