/** Small pieces that every page uses. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Tone } from "../words/health";
import { Icon } from "./icon";
import { sentence } from "./toast";

const TONE_ICON: Record<Tone, string> = { good: "check", busy: "jobs", warn: "alert", bad: "alert" };

/** A state in a colour, a picture and a word. */
export function Badge({ tone, icon, children }: { tone: Tone; icon?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      <Icon name={icon ?? TONE_ICON[tone]} />
      {children}
    </span>
  );
}

export function Chip({ children }: { children: ComponentChildren }) {
  return <span class="chip">{children}</span>;
}

/** A part of a whole as a bar; what it says stands beside it in words. */
export function Bar({ part, colour = "accent", label }: { part: number; colour?: string; label?: string }) {
  const fill = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (fill.current) fill.current.style.transform = `scaleX(${Math.max(0, Math.min(1, part))})`;
  });
  const named = label === undefined ? { "aria-hidden": true as const } : { role: "progressbar" as const, "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(part * 100) };
  return (
    <span class="bar" {...named}>
      <span ref={fill} class={`bar-fill ${colour}`} />
    </span>
  );
}

export interface Piece {
  label: string;
  value: number;
  colour: string;
  told: string;
}

/** A whole in pieces: one bar, and a legend that says the same in words. */
export function Stack({ pieces, total }: { pieces: Piece[]; total: number }) {
  return (
    <div class="stack">
      <div class="stack-bar" aria-hidden="true">
        {pieces.map((piece) => (
          <StackPiece key={piece.label} piece={piece} total={total} />
        ))}
      </div>
      <ul class="legend">
        {pieces.map((piece) => (
          <li key={piece.label}>
            <span class={`swatch ${piece.colour}`} aria-hidden="true" />
            <span>{piece.label}</span>
            <strong>{piece.told}</strong>
          </li>
        ))}
      </ul>
    </div>
  );
}

function StackPiece({ piece, total }: { piece: Piece; total: number }) {
  const element = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (element.current) element.current.style.width = `${total > 0 ? (piece.value / total) * 100 : 0}%`;
  });
  return <span ref={element} class={`stack-piece ${piece.colour}`} />;
}

/** A figure with its name. */
export function Figure({ label, value, note, title }: { label: string; value: ComponentChildren; note?: ComponentChildren; title?: string }) {
  return (
    <div class="figure" title={title}>
      <dt>{label}</dt>
      <dd>
        <span class="figure-value">{value}</span>
        {note !== undefined && <span class="figure-note">{note}</span>}
      </dd>
    </div>
  );
}

export function Panel({ title, aside, children, id, className = "" }: { title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string; className?: string }) {
  const heading = `panel-${(id ?? title).toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return (
    <section class={`panel ${className}`} id={id} aria-labelledby={heading}>
      <header class="panel-head">
        <h2 id={heading}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** What is wrong and what to do. */
export function Trouble({ tone, problem, remedy, children }: { tone: "warn" | "bad"; problem: string; remedy: string | null; children?: ComponentChildren }) {
  return (
    <div class={`trouble ${tone}`} role="alert">
      <Icon name="alert" />
      <div>
        <p><strong>{sentence(problem)}</strong></p>
        {remedy && <p>What to do: {sentence(remedy)}</p>}
        {children}
      </div>
    </div>
  );
}

/** A text to be used elsewhere, with a button that copies it. */
export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const code = useRef<HTMLElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 2000);
    } catch {
      // Without leave to use the clipboard the text is marked, for the keyboard to copy.
      if (code.current) getSelection()?.selectAllChildren(code.current);
    }
  };
  return (
    <span class="copy">
      <code ref={code}>{text}</code>
      <button type="button" class="icon-button" aria-label={done ? "Copied" : `Copy ${text}`} title={done ? "Copied" : "Copy"} onClick={copy}>
        <Icon name={done ? "check" : "copy"} />
      </button>
    </span>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p><strong>{title}</strong></p>
      {children}
    </div>
  );
}
