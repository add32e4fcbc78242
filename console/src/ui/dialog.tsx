/** A question that must be answered before anything else: the browser's own modal dialog keeps the focus inside. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../rest";
import { Trouble } from "./basics";

interface Props {
  title: string;
  /** What the button does, as a verb. */
  confirm: string;
  danger?: boolean;
  /** Whether the button can be pressed. */
  ready?: boolean;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

/** Closes itself when `onConfirm` is done; an error of the daemon is shown inside and the answer stays as it was. */
export function Dialog({ title, confirm, danger, ready = true, onConfirm, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    const before = document.activeElement;
    const element = dialog.current!;
    element.showModal();
    return () => {
      // While it is open nothing outside can have the focus.
      element.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy || !ready) return;
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      onClose();
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
      setError(thrown);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <form method="dialog" onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        <div class="dialog-body">{children}</div>
        {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={onClose}>Cancel</button>
          <button type="submit" class={`button ${danger ? "danger" : "primary"}`} disabled={!ready || busy}>{busy ? "Working…" : confirm}</button>
        </div>
      </form>
    </dialog>
  );
}

/** What a change means, before it is made. */
export function Meaning({ sentences }: { sentences: string[] }) {
  return (
    <div class="meaning" aria-live="polite">
      <h3>What this means</h3>
      <ul>
        {sentences.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </div>
  );
}
