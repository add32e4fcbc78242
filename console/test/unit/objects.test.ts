/** Objects as a tree, their policies, and the words for both. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdviceVerified } from "../../src/api";
import type { ObjectView, VolumeApplications } from "../../src/api-objects";
import { bringsNow } from "../../src/charts/small-curve";
import { isDictionary } from "../../src/insight/dictionary";
import { asked } from "../../src/insight/policy";
import { SORTS, tree, type Sort } from "../../src/insight/tree";
import { href, parse, title } from "../../src/route";
import { brings, errorTold, kindOf, pieces, policyOf, shareOf, sizeOf, stateOf, unknownShare } from "../../src/words/objects";

const plain = (text: string): string => text.replace(/[\u00a0\u202f]/g, " ");
const object = (name: string, rest: Partial<ObjectView>): ObjectView => ({
  id: 1,
  volume: "db",
  application: 3,
  engine: "InnoDB",
  instance: "/var/lib/mysql",
  database: "shop",
  kind: "table",
  name,
  within: null,
  bytes: 0,
  extents: 1,
  path: "var/lib/mysql/shop/orders.ibd",
  encrypted: false,
  being_built: false,
  evidence: "page content, file map",
  read_bytes: 0,
  hits_percent: null,
  written_bytes: 0,
  curve: [],
  admit: "normal",
  writes: "inherit",
  on_scan: "hit-only",
  policy: "default",
  ...rest,
});
const inside = (name: string, within: string, read_bytes: number): ObjectView => object(name, { kind: "index", within, read_bytes });
const OBJECTS = [
  object("redo", { database: null, kind: "redo", bytes: 5, written_bytes: 900 }),
  object("shop.a", { bytes: 10 }),
  inside("shop.a/PRIMARY", "shop.a", 50),
  object("shop.b", { bytes: 90 }),
  inside("shop.b/ix", "shop.b", 20),
  inside("shop.b/PRIMARY", "shop.b", 25),
  object("mail.t10", { database: "mail", bytes: 20, read_bytes: 10 }),
  object("mail.t9", { database: "mail", bytes: 20, read_bytes: 10 }),
];
const shown = (sort: Sort, filter = "", most = 100): string[] =>
  tree(OBJECTS, sort, filter, most).branches.flatMap(({ database, rows }) => [
    `[${database ?? ""}]`,
    ...rows.map((row) => (row.inside ? `  ${row.object.name}` : row.object.name)),
  ]);

test("a table counts with its indexes, which stand below it, the hottest first", () => {
  assert.deepEqual(shown("heat"), [
    "[shop]", "shop.a", "  shop.a/PRIMARY", "shop.b", "  shop.b/PRIMARY", "  shop.b/ix",
    "[mail]", "mail.t9", "mail.t10",
    "[]", "redo",
  ]);
  assert.deepEqual(shown("size").slice(0, 4), ["[shop]", "shop.b", "  shop.b/ix", "  shop.b/PRIMARY"]);
  assert.deepEqual(shown("name").filter((line) => line.startsWith("[")), ["[mail]", "[shop]", "[]"]);
});

test("what an object brings is told for the SSD that there is, and sorts", () => {
  const GIB = 2 ** 30;
  const curve = [1, 2, 4].map((gib, at) => ({ ssd_bytes: gib * GIB, hits_percent: [1, 5, 30][at]! }));
  assert.deepEqual([null, 0.5, 2, 2 ** 1.5, 100].map((gib) => bringsNow(curve, gib && gib * GIB)), [30, 1, 5, 17.5, 30]);
  assert.equal(bringsNow([], GIB), 0);
  assert.deepEqual([0, 0.04, 0.1, 5, 9.95, 17.5].map((share) => plain(brings(share))), ["0 %", "< 0.1 %", "0.1 %", "5 %", "9.9 %", "18 %"]);
  const gains = [object("shop.a", {}), inside("shop.a/x", "shop.a", 900), { ...inside("shop.b/y", "shop.b", 1), curve }];
  const names = tree(gains, "gain", "", 9).branches.flatMap(({ rows }) => rows.map((row) => row.object.name));
  assert.deepEqual(names, ["shop.b/y", "shop.a", "shop.a/x"]);
});

test("every object is shown once, or counted as hidden", () => {
  for (const sort of SORTS) {
    const all = tree(OBJECTS, sort, "", 100);
    const names = all.branches.flatMap(({ rows }) => rows.map((row) => row.object.name));
    assert.deepEqual([...names].sort(), OBJECTS.map((one) => one.name).sort(), sort);
    const few = tree(OBJECTS, sort, "", 4);
    assert.deepEqual([few.branches.reduce((sum, { rows }) => sum + rows.length, 0), few.hidden, few.fitting], [4, 4, 8]);
  }
  const shop = tree(OBJECTS, "heat", "", 100).branches[0]!;
  assert.deepEqual([shop.objects, shop.bytes, shop.read_bytes], [5, 100, 95]);
});

test("the filter looks at names, kinds and databases; an index stands alone without its table", () => {
  assert.deepEqual(shown("heat", " PRIMARY "), ["[shop]", "shop.a/PRIMARY", "shop.b/PRIMARY"]);
  assert.deepEqual(shown("heat", "redo"), ["[]", "redo"]);
  assert.deepEqual(shown("heat", "mail"), ["[mail]", "mail.t9", "mail.t10"]);
  assert.deepEqual(shown("heat", "nothing"), []);
});

test("a server's own objects are known by kind, database or schema; what users keep is not among them", () => {
  const postgres = (name: string, kind = "table"): ObjectView => object(name, { engine: "PostgreSQL", database: "shop", kind });
  const own = [
    object("system tablespace", { database: null, kind: "dictionary" }),
    object("mysql.innodb_table_stats", { database: "mysql" }),
    object("sys.sys_config/PRIMARY", { database: "sys", kind: "index" }),
    postgres("shop/pg_catalog.pg_class", "dictionary"),
    postgres("shop/pg_toast.pg_proc", "dictionary"),
    postgres("shop/pg_catalog.of_an_extension"),
    postgres("shop/information_schema.sql_features"),
    object("pg_catalog.pg_database", { engine: "PostgreSQL", database: null }),
    object("master/sys.sysallocunits", { engine: "SQL Server", database: "master", kind: "dictionary" }),
  ];
  const users = [
    ...OBJECTS,
    object("undo_001", { database: null, kind: "undo" }),
    object("sysadmin.t", { database: "sysadmin" }),
    postgres("shop/public.pg_catalog.x"),
    postgres("shop/pg_toast.orders", "toast"),
    object("mysql/dbo.t", { engine: "SQL Server", database: "mysql" }),
  ];
  assert.deepEqual(own.filter((one) => !isDictionary(one)), []);
  assert.deepEqual(users.filter(isDictionary), []);
});

test("the dictionary of all databases is one branch beside them, with its own share of rows", () => {
  const own = [object("mysql.a", { database: "mysql", bytes: 7, read_bytes: 900 }), object("shop.b", { kind: "dictionary", bytes: 3, read_bytes: 5 }), object("tablespace", { database: null, kind: "dictionary" })];
  const all = tree([...own, ...OBJECTS], "heat", "", 2);
  assert.deepEqual(all.branches.map(({ database }) => database), ["shop"], "hotter objects of the server come in between nowhere");
  assert.deepEqual([all.dictionary!.objects, all.dictionary!.bytes, all.dictionary!.read_bytes], [3, 10, 905]);
  assert.deepEqual(all.dictionary!.rows.map(({ object: { name } }) => name), ["mysql.a", "shop.b"]);
  assert.deepEqual([all.fitting, all.hidden], [11, 7]);
  assert.equal(tree(OBJECTS, "heat", "", 100).dictionary, null);
  const found = tree([...own, ...OBJECTS], "heat", "mysql", 100);
  assert.deepEqual([found.branches.length, found.dictionary!.rows.length], [0, 1]);
});

test("for an object what differs is sent, for its kind all of it, and a reset says no more", () => {
  const one = object("shop.a", { id: 7 });
  const wanted = { admit: "pinned", writes: "inherit", on_scan: "hit-only" } as const;
  assert.deepEqual(asked(one, wanted, false), { volume: "db", application: "3", objects: ["7"], admit: "pinned" });
  assert.deepEqual(asked(one, wanted, true), { volume: "db", application: "3", kind: "table", ...wanted });
  assert.deepEqual(asked(one, null, false), { volume: "db", application: "3", objects: ["7"], reset: true });
  assert.deepEqual(asked(one, null, true), { volume: "db", application: "3", kind: "table", reset: true });
});

test("states, shares, kinds and policies are in words", () => {
  const of: VolumeApplications = {
    volume: "db", state: "found", problem: null, age_ms: 1, looked_at_bytes: 1, complete: false, blind: [], unknown_percent: null, applications: [],
  };
  const word = (rest: Partial<VolumeApplications>): string => stateOf({ ...of, ...rest }).word;
  assert.deepEqual(
    [word({}), word({ complete: true }), word({ state: "waiting" }), word({ state: "looking" }), word({ state: "failed" })],
    ["partly understood", "all understood", "waits for its turn", "being looked at", "failed"],
  );
  assert.deepEqual([null, 0, 23.4, 0.4].map((unknown_percent) => plain(unknownShare({ ...of, unknown_percent }))), ["nothing used yet", "0 %", "23 %", "0.4 %"]);
  assert.deepEqual(pieces("page content, file map"), ["page content", "file map"]);
  assert.deepEqual(pieces(""), []);
  assert.deepEqual([shareOf(null), plain(shareOf(96.1))], ["–", "96 %"]);
  assert.deepEqual([kindOf(inside("a/x", "a", 1)), kindOf(object("a", {}))], ["index, in its table", "table"]);
  assert.deepEqual([sizeOf(inside("a/x", "a", 1)), plain(sizeOf(object("a", {})))], ["–", "0 B"]);
  assert.equal(policyOf(object("a", {})), "normal (default)");
  assert.equal(policyOf(object("a", { admit: "pinned", writes: "through", on_scan: "normal", policy: "rule" })), "pinned, writes through, scans normal");
});

test("a forecast is too high, too low, or right", () => {
  const told = (error_points: number | null): string =>
    plain(errorTold({ id: 1, volume: "db", window_ms: 1, forecast_percent: null, forecast_percent_low: null, forecast_percent_high: null, measured_percent: null, error_points, sentences: [] } satisfies AdviceVerified));
  assert.deepEqual([1.24, -3, 0, -0.04, null].map(told), ["1.2 points too high", "3.0 points too low", "0 points", "0 points", "–"]);
});

test("applications and objects have addresses", () => {
  for (const route of [
    { page: "apps" },
    { page: "apps", volume: "a b", id: 4_294_967_295 },
    { page: "object", volume: "db", id: 0 },
  ] as const)
    assert.deepEqual(parse(href(route)), route);
  for (const hash of ["#/apps/db", "#/object/db", "#/object/db/x", "#/object/db/1/2", "#/object"]) assert.equal(parse(hash).page, "unknown", hash);
  assert.equal(title({ page: "object", volume: "db", id: 7 }), "Object 7 of db");
});
