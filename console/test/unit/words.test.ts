import assert from "node:assert/strict";
import { test } from "node:test";
import { connecting } from "../../src/volume/shares";
import { listed, servedBy, whoIsConnected } from "../../src/words/shares";
import type { Options, VolumeView, ShareView } from "../../src/api";
import { SETTINGS } from "../../src/words/settings";
import { exposure, modeMeaning, type Situation } from "../../src/words/modes";
import { healthLine } from "../../src/words/health";
import { reason } from "../../src/words/outcomes";

const options: Options = { mode: "write-back", admission: "second-touch", write_cache_depth_ms: 30_000, dirty_limit_bytes: 2 ** 30, max_io_bytes: 65_536, sequential_cutoff_bytes: null, log_burst_bytes: null, latency_goal_ms: 50, destage_rate_bytes: null, read_only: false, on_ssd_loss: "stop", tls_names: [] };
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
