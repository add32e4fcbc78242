/** Which objects are a server's own dictionary: its catalogue, and the databases that it makes for itself. */

import type { ObjectView } from "../api-objects";

/** Databases that every server of MySQL and MariaDB makes for itself. Their tables look like those of users. */
const OWN_DATABASES: ReadonlySet<string> = new Set(["mysql", "sys", "performance_schema", "information_schema"]);
/** Schemas of PostgreSQL's catalogue. */
const OWN_SCHEMAS = ["pg_catalog.", "information_schema."];

/**
 * The daemon says it of most objects by their kind. The rest is told by the database or schema:
 * `mysql.innodb_table_stats`, and what extensions put into `pg_catalog`. Neither the long values of
 * a user's table (`pg_toast.orders`, which may be most of it) nor undo logs belong to it.
 */
export function isDictionary({ engine, kind, database, name }: ObjectView): boolean {
  if (kind === "dictionary") return true;
  if (engine === "InnoDB") return database !== null && OWN_DATABASES.has(database);
  if (engine !== "PostgreSQL") return false;
  const inDatabase = database !== null && name.startsWith(`${database}/`) ? name.slice(database.length + 1) : name;
  return OWN_SCHEMAS.some((schema) => inDatabase.startsWith(schema));
}
