/** Objects of an application as a tree: databases, what lies in them, indexes within their tables; and apart, the dictionary. */

import type { ObjectView } from "../api-objects";
import { isDictionary } from "./dictionary";

export const SORTS = ["heat", "gain", "size", "name"] as const;
export type Sort = (typeof SORTS)[number];

export interface Row {
  object: ObjectView;
  /** It stands below the one in whose file it lies. */
  inside: boolean;
}

export interface Branch {
  /** Null: of the application itself. */
  database: string | null;
  objects: number;
  bytes: number;
  read_bytes: number;
  rows: Row[];
}

export interface Tree {
  branches: Branch[];
  /** The server's own objects, of all databases; null: none fits. */
  dictionary: Branch | null;
  /** Objects that fit the filter. */
  fitting: number;
  /** Of them, those beyond the most that are shown. */
  hidden: number;
}

/** Objects that belong together, and what they weigh together. */
interface Family {
  name: string;
  weight: number;
  rows: Row[];
}

const names = new Intl.Collator("en", { numeric: true });

/** Sorted: an object with those that lie in its file counts as one. At most so many rows, and as many of the dictionary. */
export function tree(objects: ObjectView[], sort: Sort, filter: string, most: number): Tree {
  const wanted = filter.trim().toLowerCase();
  const text = ({ name, kind, database }: ObjectView): string => `${name} ${kind} ${database ?? ""}`;
  const fitting = objects.filter((object) => text(object).toLowerCase().includes(wanted));
  const own = fitting.filter(isDictionary);
  const users = fitting.filter((object) => !isDictionary(object));
  const branches = [...groups(users, (object) => object.database).entries()].map(([database, of]) => ({
    ...totals(database, of),
    families: families(of, sort),
  }));
  const ranked = branches
    .map((branch) => ({
      ...branch,
      name: branch.database ?? "\uffff",
      weight: branch.families.reduce((all, family) => all + family.weight, 0),
    }))
    .sort(order);
  let room = most;
  const shown = ranked.map(({ database, objects: number, bytes, read_bytes, families: of }): Branch => {
    const rows = of.flatMap((family) => family.rows).slice(0, room);
    room -= rows.length;
    return { database, objects: number, bytes, read_bytes, rows };
  });
  return {
    branches: shown.filter((branch) => branch.rows.length > 0),
    dictionary: own.length === 0 ? null : { ...totals(null, own), rows: families(own, sort).flatMap((family) => family.rows).slice(0, most) },
    fitting: fitting.length,
    hidden: Math.max(0, users.length - most) + Math.max(0, own.length - most),
  };
}

const totals = (database: string | null, of: ObjectView[]): Omit<Branch, "rows"> => ({
  database,
  objects: of.length,
  bytes: sum(of, "bytes"),
  read_bytes: sum(of, "read_bytes"),
});

function families(objects: ObjectView[], sort: Sort): Family[] {
  const there = new Set(objects.filter((object) => object.within === null).map((object) => object.name));
  const head = ({ within, name }: ObjectView): string => (within !== null && there.has(within) ? within : name);
  const found = [...groups(objects, head).entries()].map(([name, of]): Family => {
    const rows = of.map((object) => ({ object, inside: object.within === name }));
    const by = (row: Row): Family => ({ name: row.object.name, weight: weight(row.object, sort), rows: [] });
    rows.sort((a, b) => Number(a.inside) - Number(b.inside) || order(by(a), by(b)));
    return { name, weight: of.reduce((all, object) => all + weight(object, sort), 0), rows };
  });
  return found.sort(order);
}

/** The heaviest first; of equals by name. */
const order = (a: { name: string; weight: number }, b: { name: string; weight: number }): number =>
  b.weight - a.weight || names.compare(a.name, b.name);

/** Reads make heat; writes tell apart what is not read. */
function weight(object: ObjectView, sort: Sort): number {
  if (sort === "name") return 0;
  if (sort === "gain") return object.curve[object.curve.length - 1]?.hits_percent ?? 0;
  return sort === "size" ? object.bytes : object.read_bytes + object.written_bytes / 2 ** 20;
}

const sum = (objects: ObjectView[], field: "bytes" | "read_bytes"): number =>
  objects.reduce((all, object) => all + object[field], 0);

function groups<K, V>(values: V[], key: (value: V) => K): Map<K, V[]> {
  const found = new Map<K, V[]>();
  for (const value of values) {
    const of = found.get(key(value));
    if (of) of.push(value);
    else found.set(key(value), [value]);
  }
  return found;
}
