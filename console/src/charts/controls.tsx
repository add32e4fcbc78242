/** Which stretch of time: buttons that do what dragging does, for the keyboard. */

import { dateTime } from "../format";
import { Icon } from "../ui/icon";
import { RANGES, type Window } from "./window";

export function WindowControls({ window }: { window: Window }) {
  const span = window.span.value;
  const icon = (name: string, label: string, act: () => void) => (
    <button type="button" class="icon-button" aria-label={label} title={label} onClick={act}><Icon name={name} /></button>
  );
  return (
    <div class="window-controls" role="group" aria-label="Time shown">
      <div class="segments">
        {RANGES.map((range) => (
          <button key={range.word} type="button" title={`The last ${range.told}`} aria-pressed={span.kind === "last" && span.seconds === range.seconds} onClick={() => window.last(range.seconds)}>
            {range.word}
          </button>
        ))}
      </div>
      <div class="icons">
        {icon("left", "Earlier", () => window.move(-1))}
        {icon("right", "Later", () => window.move(1))}
        {icon("plus", "Zoom in", () => window.scale(0.5))}
        {icon("minus", "Zoom out", () => window.scale(2))}
      </div>
      {span.kind === "fixed" && (
        <span class="zoomed">
          {dateTime(span.from_s)} to {dateTime(span.to_s)}
          <button type="button" class="button small" onClick={() => window.reset()}>Back to now</button>
        </span>
      )}
    </div>
  );
}
