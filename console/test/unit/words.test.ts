import assert from "node:assert/strict";
import { test } from "node:test";
import { connecting } from "../../src/volume/shares";
import { canBeShared, connectedTold, initiatorsOf, listed, mayConnect, protocolsFree, servedBy, shareState, whoIsConnected } from "../../src/words/shares";
import { isOwn, revoked } from "../../src/words/tokens";
import type { Options, SessionView, VolumeView } from "../../src/api";
import type { ShareView } from "../../src/api-access";
import { SETTINGS } from "../../src/words/settings";
import { exposure, modeMeaning, type Situation } from "../../src/words/modes";
import { healthLine } from "../../src/words/health";
import { reason } from "../../src/words/outcomes";

const options: Options = { mode: "write-back", admission: "second-touch", write_cache_depth_ms: 30_000, dirty_limit_bytes: 2 ** 30, max_io_bytes: 65_536, sequential_cutoff_bytes: null, log_burst_bytes: null, latency_goal_ms: 50, destage_rate_bytes: null, read_only: false, on_ssd_loss: "stop", atomic_bytes: 16_384, tls_names: [] };
const now: Situation = { volume: "db", backing: "/dev/sdb", options, dirty_bytes: 5 * 2 ** 20, written_bytes_s: 2 ** 20 };
const plain = (text: string): string => text.replace(/[\u00a0\u202f]/g, " ");

test("what is shown can be typed again and changes nothing", () => {
  for (const setting of SETTINGS) {
    const parsed = setting.patch(setting.typed(options));
    assert.equal(parsed.problem, undefined, setting.word);
    const [value] = Object.values(parsed.value!);
    const told = options[setting.key];
    assert.deepEqual(value === "off" ? null : typeof value === "object" && value && "bytes" in value ? value.bytes : value, told, setting.word);
  }
});

test("settings keep the daemon's bounds", () => {
  const wrong: [string, string][] = [["write_cache_depth_ms", "0s"], ["write_cache_depth_ms", "25h"], ["dirty_limit_bytes", "1KiB"], ["max_io_bytes", "off"], ["max_io_bytes", "64MiB"], ["sequential_cutoff_bytes", "1"], ["log_burst_bytes", "1"], ["latency_goal_ms", "61s"], ["destage_rate_bytes", "3"], ["tls_names", ""], ["tls_names", "a,,b"]];
  for (const [key, text] of wrong) assert.ok(SETTINGS.find((setting) => setting.key === key)!.patch(text).problem, `${key} ${text}`);
});

test("each change has a meaning", () => {
  for (const setting of SETTINGS) {
    for (const text of setting.choices?.map((choice) => choice.word) ?? [setting.typed(options)]) assert.ok(setting.meaning(text, now).length > 0, `${setting.word} ${text}`);
  }
});

test("leaving write-back tells how much is destaged, entering it how much can be lost", () => {
  assert.match(plain(modeMeaning("write-through", now)[0]!), /5 MiB of dirty data are destaged to \/dev\/sdb first/);
  const entering = modeMeaning("write-back", { ...now, options: { ...options, mode: "write-through" } }).map(plain).join(" ");
  assert.match(entering, /30 s after/);
  assert.match(entering, /up to 1 GiB \(the dirty limit\); at the 1 MiB\/s written just now, about 30 MiB/);
  assert.match(exposure({ ...now, options: { ...options, dirty_limit_bytes: null }, written_bytes_s: null }), /up to what the pool allows/);
});

test("health is one line, and the worst comes first", () => {
  const volume = { name: "db", health: "failed", problem: "its disk is gone", options, dirty_bytes: 0 } as unknown as VolumeView;
  assert.deepEqual(healthLine(volume, null, undefined), { tone: "bad", text: "Does not work: its disk is gone" });
  assert.deepEqual(healthLine({ ...volume, health: "failing", problem: "writes to its backing device fail: No space left on device (os error 28)" }, null, undefined), {
    tone: "bad", text: "A device refuses requests: writes to its backing device fail: No space left on device (os error 28)",
  });
  assert.equal(healthLine({ ...volume, health: "running", dirty_bytes: 2 ** 30 }, null, undefined).tone, "warn");
  assert.equal(healthLine({ ...volume, health: "running" }, null, undefined).text, "Running");
});

test("every reason of the engine has words, and an unknown one is still told", () => {
  for (const name of ["size", "sequential", "pass_through", "write_around", "first_touch", "dirty_limit", "no_space", "degraded", "policy", "stream"]) {
    const told = reason(name, options);
    assert.ok(told.why.length > 20 && told.remedy.length > 10, name);
    assert.notEqual(told.title, name.replace(/_/g, " "));
  }
  assert.equal(reason("new_one", null).title, "new one");
});

test("a share is used by the commands of its protocol, and lists are read as people write them", () => {
  const share = { volume: "db", protocol: "iscsi", target: "iqn.x:y", addresses: ["192.0.2.1:3260"] } as unknown as ShareView;
  assert.deepEqual(connecting(share), ["iscsiadm -m discovery -t sendtargets -p 192.0.2.1:3260", "iscsiadm -m node -T iqn.x:y -p 192.0.2.1:3260 --login"]);
  assert.deepEqual(connecting({ ...share, protocol: "nvme-tcp", target: "nqn.x", addresses: ["[2001:db8::1]:4420"] }), ["nvme connect -t tcp -a 2001:db8::1 -s 4420 -n nqn.x -l -1"]);
  assert.deepEqual(["lio", "nvmet", "tgt"].map(servedBy), ["the kernel (LIO)", "the kernel (nvmet)", "tgt"]);
  assert.deepEqual(listed(" iqn.a:b, iqn.c:d\niqn.e:f "), ["iqn.a:b", "iqn.c:d", "iqn.e:f"]);
  assert.match(whoIsConnected(null), /not known/);
  assert.equal(whoIsConnected([]), "No initiator is connected.");
  assert.match(whoIsConnected(["iqn.a:b"]), /^Connected: iqn.a:b/);
});

test("what is not known of a share is never told as none", () => {
  const share = { volume: "db", protocol: "iscsi", device: "/dev/loop0", initiators: ["iqn.a", "iqn.b"], connected: ["iqn.b"] } as unknown as ShareView;
  assert.deepEqual([shareState(share), shareState({ ...share, problem: "x" }), shareState({ ...share, device: null, problem: "x" }), shareState({ ...share, device: null })].map(({ tone, word }) => `${tone}: ${word}`), [
    "good: offered", "warn: offered, state unknown", "bad: not offered", "busy: not offered just now",
  ]);
  const told = (rest: Partial<ShareView>): string => initiatorsOf({ ...share, ...rest }).map(({ name, connected }) => `${name} ${connected}`).join(", ");
  assert.equal(told({}), "iqn.a false, iqn.b true");
  assert.equal(told({ connected: null }), "iqn.a null, iqn.b null");
  assert.equal(told({ initiators: [], connected: ["iqn.c"] }), "iqn.c true");
  assert.deepEqual([connectedTold(share), connectedTold({ ...share, connected: null }), connectedTold({ ...share, connected: [] })], ["iqn.b", "unknown", "none"]);
  assert.deepEqual([mayConnect(share), mayConnect({ ...share, initiators: [] })], ["iqn.a, iqn.b", "all"]);
});

test("what has a block device can be shared by the protocols that are left", () => {
  const iscsi = { protocol: "iscsi" } as unknown as ShareView;
  const nvme = { protocol: "nvme-tcp" } as unknown as ShareView;
  assert.deepEqual([protocolsFree([]), protocolsFree([iscsi]), protocolsFree([iscsi, nvme])], [["iscsi", "nvme-tcp"], ["nvme-tcp"], []]);
  const of = { health: "running", exports: { loop: "/dev/loop3" }, stable_path: null, shares: [iscsi] } as unknown as VolumeView;
  assert.equal(canBeShared(of), true);
  assert.equal(canBeShared({ ...of, shares: [iscsi, nvme] }), false);
  assert.equal(canBeShared({ ...of, exports: { nbd: "nbd+unix:///db" } }), false);
  assert.equal(canBeShared({ ...of, health: "removing" }), false);
});

test("who revokes the token of the own session is told so", () => {
  const token = { name: "admin", role: "operate", created_unix_s: 1 } as const;
  const session: SessionView = { role: "operate", by: "session", name: "admin", csrf: "x" };
  assert.deepEqual([session, { ...session, by: "token" }, { ...session, name: "console" }, { ...session, by: "socket" }, null].map((one) => isOwn(token, one)), [true, true, false, false, false]);
  assert.match(revoked(token, session).at(-1)!, /this session ends, too/);
  assert.equal(revoked(token, null).length, 2);
});
