/** Why a range is, or is not, cached. */

import { useEffect, useRef, useState } from "preact/hooks";
import { WHY_BYTES_MAX, type VolumeView, type WhyView } from "../api";
import { bytes, count, percent, span } from "../format";
import { range, type Range } from "../parse";
import { ApiError, get, part } from "../rest";
import { Panel, Stack, Trouble, type Piece } from "../ui/basics";
import { OUTCOMES } from "../words/outcomes";

/** A range that was asked for; `number` grows with each question, also when the same is asked again. */
export interface Question extends Range {
  number: number;
}

/** An offset or range as it would be typed. */
export function rangeText(asked: Range): string {
  return `${exact(asked.start_bytes)}-${exact(asked.end_bytes)}`;
}

/** Bytes in the largest unit that loses nothing. */
export function exact(value: number): string {
  for (const [power, unit] of [[4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]] as const) {
    if (value > 0 && value % 1024 ** power === 0) return `${value / 1024 ** power}${unit}`;
  }
  return String(value);
}

export function Why({ volume, asked }: { volume: VolumeView; asked: Question | null }) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  const [answer, setAnswer] = useState<WhyView | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [cut, setCut] = useState(false);
  const result = useRef<HTMLDivElement>(null);
  const running = useRef(0);

  const ask = async (of: Range): Promise<void> => {
    const turn = (running.current += 1);
    const length_bytes = Math.min(of.end_bytes - of.start_bytes, WHY_BYTES_MAX);
    setCut(length_bytes < of.end_bytes - of.start_bytes);
    try {
      const told = await get<WhyView>(`/volumes/${part(volume.name)}/why`, { start_bytes: of.start_bytes, length_bytes });
      if (turn !== running.current) return;
      setAnswer(told);
      setError(null);
    } catch (thrown) {
      if (turn !== running.current || !(thrown instanceof ApiError)) return;
      setError(thrown);
    }
  };
  useEffect(() => {
    if (!asked) return;
    setText(rangeText(asked));
    setWrong(null);
    void ask(asked).then(() => {
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      result.current?.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
    });
  }, [asked?.number]);

  const submit = (event: Event): void => {
    event.preventDefault();
    const parsed = range(text, volume.size_bytes);
    setWrong(parsed.problem ?? null);
    if (parsed.value) void ask(parsed.value);
  };
  return (
    <Panel title="Why is this cached, or not?" id="why">
      <form class="why-form" onSubmit={submit}>
        <label class="field">
          <span>Offset or range</span>
          <input name="range" value={text} placeholder="10GiB or 1GiB-2GiB" spellcheck={false} autocomplete="off" aria-invalid={wrong !== null} aria-describedby={wrong ? "why-wrong" : undefined} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button primary">Why?</button>
        {!answer && !error && <p class="muted">Or click a cell of the address space.</p>}
      </form>
      {wrong && <p class="wrong" id="why-wrong" role="alert">{wrong}</p>}
      <div ref={result} aria-live="polite">
        {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
        {answer && !error && <Answer why={answer} cut={cut} />}
      </div>
    </Panel>
  );
}

function Answer({ why, cut }: { why: WhyView; cut: boolean }) {
  const cachedAnywhere = why.on_ssd_blocks;
  const clean = Math.max(0, cachedAnywhere - why.dirty_blocks);
  const none = Math.max(0, why.blocks - cachedAnywhere);
  const share = (blocks: number): string => `${bytes(blocks * 4096)} (${percent(why.blocks > 0 ? blocks / why.blocks : 0)})`;
  const pieces: Piece[] = [
    { label: "cached, clean", value: clean, colour: "cached", told: share(clean) },
    { label: "cached, dirty", value: why.dirty_blocks, colour: "dirty", told: share(why.dirty_blocks) },
    { label: "not on the SSD", value: none, colour: "none", told: share(none) },
  ];
  const encodings = Object.entries(why.encodings).filter(([, blocks]) => blocks > 0);
  return (
    <div class="why">
      <h3>{exact(why.start_bytes)} to {exact(why.end_bytes)}</h3>
      {cut && <p class="muted">At most {bytes(WHY_BYTES_MAX)} are looked into at once: this is the first part of what you asked for.</p>}
      {why.object && <p>{why.object}</p>}
      {why.stream && <p>{why.stream}</p>}
      <ul class="verdict">{why.verdict.map((text) => <li key={text}>{text}</li>)}</ul>
      <Stack pieces={pieces} total={why.blocks} />
      <p class="muted">
        In RAM too: {share(why.in_ram_blocks)}.{" "}
        {why.dirty_since_s !== null && <>The oldest dirty block waits for {span(why.dirty_since_s)}. </>}
        {encodings.length > 0 && <>Stored as {encodings.map(([name, blocks]) => `${name} ${count(blocks)}`).join(", ")} blocks.</>}
      </p>
      <div class="why-tables">
        <Runs why={why} />
        <Recent why={why} />
      </div>
    </div>
  );
}

const PLACES: Record<string, string> = { ram: "RAM", ssd: "SSD", "ram+ssd": "RAM and SSD", none: "the disk only" };

function Runs({ why }: { why: WhyView }) {
  if (why.runs.length === 0) return null;
  return (
    <div>
      <h4>Piece by piece</h4>
      <div class="table-box tall" tabIndex={0} role="region" aria-label="Pieces of the range">
        <table class="compact">
          <thead><tr><th scope="col">From</th><th scope="col" class="right">Length</th><th scope="col">Where</th><th scope="col">Stored</th><th scope="col">State</th><th scope="col">Hit</th></tr></thead>
          <tbody>{why.runs.map((run) => (
            <tr key={run.start_bytes}>
              <th scope="row">{exact(run.start_bytes)}</th>
              <td class="right" data-label="Length">{bytes(run.length_bytes)}</td>
              <td data-label="Where">{PLACES[run.place] ?? run.place}</td>
              <td data-label="Stored">{run.encoding ?? "–"}</td>
              <td data-label="State">{run.dirty ? <span class="dirty-text">dirty{run.dirty_since_s === null ? "" : ` for ${span(run.dirty_since_s)}`}</span> : run.place === "none" ? "–" : "clean"}</td>
              <td data-label="Hit">{run.hits ?? "–"}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      {why.truncated && <p class="muted">There are more pieces; ask for a shorter range to see them.</p>}
    </div>
  );
}

function Recent({ why }: { why: WhyView }) {
  return (
    <div>
      <h4>Latest requests here</h4>
      {why.recent.length === 0 ? <p class="muted">None: this range has had no requests recently.</p> : (
        <div class="table-box tall" tabIndex={0} role="region" aria-label="Latest requests">
          <table class="compact">
            <thead><tr><th scope="col">When</th><th scope="col">Request</th><th scope="col">What became of it</th></tr></thead>
            <tbody>{why.recent.map((request, index) => (
              <tr key={`${request.ago_ms}-${index}`}>
                <th scope="row">{span(request.ago_ms / 1000)} ago</th>
                <td data-label="Request">{request.op} {bytes(request.length_bytes)} at {exact(request.start_bytes)}</td>
                <td data-label="Became"><strong>{OUTCOMES[request.outcome] ?? request.outcome}</strong>. {request.summary}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}
