/** Short messages in the corner: errors stay until they are closed, the rest goes by itself. */

import { signal } from "@preact/signals";
import { Icon } from "./icon";

export interface Toast {
  kind: "error" | "done";
  title: string;
  detail?: string;
  remedy?: string | null;
}

const shown = signal<(Toast & { id: number })[]>([]);
let last = 0;

export function toast(message: Toast): void {
  const id = (last += 1);
  shown.value = [...shown.value.slice(-3), { ...message, id }];
  if (message.kind === "done") setTimeout(() => close(id), 6000);
}

function close(id: number): void {
  shown.value = shown.value.filter((message) => message.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map((message) => (
        <div key={message.id} class={`toast ${message.kind}`}>
          <Icon name={message.kind === "error" ? "alert" : "check"} />
          <div class="toast-text">
            <strong>{message.title}</strong>
            {message.detail && <p>{sentence(message.detail)}</p>}
            {message.remedy && <p class="remedy">What to do: {sentence(message.remedy)}</p>}
          </div>
          <button type="button" class="icon-button" aria-label="Close this message" onClick={() => close(message.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

/** A clause of the daemon as a sentence. */
export function sentence(clause: string): string {
  const text = clause.charAt(0).toUpperCase() + clause.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
