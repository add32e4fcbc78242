/** Buttons that change something: disabled, with the reason, for those who may only look. */

import type { ComponentChildren } from "preact";
import { mayOperate, whyNot } from "../live/store";

interface Props {
  onClick: () => void;
  kind?: "primary" | "danger" | "plain";
  disabled?: boolean;
  label?: string;
  title?: string | undefined;
  children: ComponentChildren;
}

export function Operate({ onClick, kind = "plain", disabled = false, label, title, children }: Props) {
  return (
    <button type="button" class={`button ${kind}`} aria-label={label} disabled={disabled || !mayOperate.value} title={whyNot.value ?? title} onClick={onClick}>
      {children}
    </button>
  );
}

/** Said once at the top of pages with controls. */
export function ViewOnly() {
  return whyNot.value ? <p class="view-only" role="note">{whyNot.value} Ask for a token with the role operate to change something.</p> : null;
}
