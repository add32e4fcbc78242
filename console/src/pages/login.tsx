/** Logging in with a token. */

import { useEffect, useRef, useState } from "preact/hooks";
import { login } from "../live/connection";
import { ApiError } from "../rest";
import { Trouble } from "../ui/basics";

export function Login() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (token.trim() === "") return;
    setBusy(true);
    setError(null);
    try {
      await login({ token: token.trim() });
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
      setError(thrown);
      setBusy(false);
      field.current?.focus();
    }
  };
  return (
    <main class="login">
      <form class="panel" onSubmit={submit}>
        <img src="icon.svg" alt="" width="44" height="44" />
        <h1>Log in to hearth</h1>
        <label class="field">
          <span>Token</span>
          <input ref={field} name="token" type="password" autocomplete="current-password" spellcheck={false} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
        <button type="submit" class="button primary" disabled={busy || token.trim() === ""}>{busy ? "Logging in…" : "Log in"}</button>
        <p class="muted">On the daemon's machine, <code>hearth console</code> prints an address that logs you in without a token.</p>
      </form>
    </main>
  );
}
