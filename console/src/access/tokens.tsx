/** Tokens: who may use the API and the console from elsewhere. A secret is shown once, when it is made. */

import { useState } from "preact/hooks";
import type { Done, Role } from "../api";
import type { TokenCreate, TokenMade, TokenView } from "../api-access";
import { dateTime } from "../format";
import { usePolled } from "../live/polled";
import { session } from "../live/store";
import { nameProblem } from "../parse";
import { part, post, remove } from "../rest";
import { Chip, Copy, Panel, Trouble } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Text } from "../ui/form";
import { Operate } from "../ui/operate";
import { Table, type Column } from "../ui/table";
import { toast } from "../ui/toast";
import { isOwn, revoked, ROLE_MEANS } from "../words/tokens";

const EVERY_MS = 10_000;

export function Tokens() {
  const { value: tokens, error, again } = usePolled<TokenView[]>("/tokens", EVERY_MS);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<TokenView | null>(null);
  const [made, setMade] = useState<TokenMade | null>(null);
  return (
    <Panel title="Tokens" id="tokens" aside={<Operate onClick={() => setCreating(true)}>Create a token</Operate>}>
      <div role="status">{made && <Secret made={made} onHide={() => setMade(null)} />}</div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {!tokens && !error && <p class="calm">Asking the daemon…</p>}
      {tokens?.length === 0 && <p class="calm">There is no token. On the daemon's machine none is needed; scripts and browsers elsewhere log in with one.</p>}
      {tokens && tokens.length > 0 && (
        <div class="table-box">
          <Table columns={columns(setRevoking)} rows={tokens} />
        </div>
      )}
      {creating && (
        <Create
          onMade={(one) => {
            setMade(one);
            again();
          }}
          onClose={() => setCreating(false)}
        />
      )}
      {revoking && (
        <Revoke
          token={revoking}
          onRevoked={() => {
            if (made?.name === revoking.name) setMade(null);
            again();
          }}
          onClose={() => setRevoking(null)}
        />
      )}
    </Panel>
  );
}

const columns = (onRevoke: (token: TokenView) => void): Column<TokenView>[] => [
  ["Name", (token) => <>{token.name}{isOwn(token, session.value) && <span class="under">you</span>}</>],
  ["Role", ({ role }) => <><Chip>{role}</Chip> <span class="muted">{ROLE_MEANS[role]}</span></>],
  ["Created", ({ created_unix_s }) => dateTime(created_unix_s)],
  ["Change", (token) => <Operate kind="danger" label={`Revoke ${token.name}`} onClick={() => onRevoke(token)}>Revoke</Operate>, "right"],
];

/** Stays until it is put away: a dialog is closed too easily. */
function Secret({ made, onHide }: { made: TokenMade; onHide: () => void }) {
  return (
    <div class="secret">
      <p><strong>The token {made.name} is made.</strong> Copy its secret now: it is stored nowhere, and not shown again.</p>
      <Copy text={made.token} />
      <button type="button" class="button small" onClick={onHide}>Hide it</button>
    </div>
  );
}

function Create({ onMade, onClose }: { onMade: (made: TokenMade) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("view");
  const confirm = async (): Promise<void> => onMade(await post<TokenMade>("/tokens", { name, role } satisfies TokenCreate));
  return (
    <Dialog title="Create a token" confirm="Create it" ready={nameProblem(name) === undefined} onConfirm={confirm} onClose={onClose}>
      <Text label="Name of the token" value={name} placeholder="prometheus" wrong={name === "" ? undefined : nameProblem(name)} hint="to recognise and revoke it: letters, digits, . _ -" onText={setName} />
      <fieldset class="choices">
        <legend>What may its bearer do?</legend>
        {(Object.keys(ROLE_MEANS) as Role[]).map((word) => (
          <label key={word} class="choice">
            <input type="radio" name="role" checked={role === word} onChange={() => setRole(word)} />
            <span><strong>{word}</strong><span class="under">{ROLE_MEANS[word]}</span></span>
          </label>
        ))}
      </fieldset>
      <Meaning sentences={["Its secret is shown once. The daemon stores its SHA-256 only."]} />
    </Dialog>
  );
}

function Revoke({ token, onRevoked, onClose }: { token: TokenView; onRevoked: () => void; onClose: () => void }) {
  const confirm = async (): Promise<void> => {
    await remove<Done>(`/tokens/${part(token.name)}`);
    toast({ kind: "done", title: `The token ${token.name} is revoked` });
    onRevoked();
  };
  return (
    <Dialog title={`Revoke the token ${token.name}`} confirm="Revoke it" danger onConfirm={confirm} onClose={onClose}>
      <Meaning sentences={revoked(token, session.value)} />
    </Dialog>
  );
}
