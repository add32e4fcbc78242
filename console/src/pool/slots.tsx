/** How full the slots of a pool are, and which policy decides what stays. */

import type { SlotStats } from "../api-space";
import { bytes, count, percent } from "../format";
import { Bar, Chip, Figure, Panel } from "../ui/basics";

export function Slots({ stats }: { stats: SlotStats }) {
  const shards = stats.policies.reduce((sum, policy) => sum + policy.shards, 0);
  const most = Math.max(0.001, ...stats.policies.map((policy) => policy.miss_part ?? 0));
  const since = stats.policy_changes === 0 ? "never changed" : `changed ${count(stats.policy_changes)} times, last ${count(stats.accesses_since_change)} accesses ago`;
  return (
    <Panel title="Slots and policy" id="slots">
      <dl class="figures">
        <Figure label="Live" value={percent(stats.live_part)} note={`${bytes(stats.live_bytes)} of ${bytes(stats.size_bytes)}`} />
        <Figure label="Free" value={bytes(stats.free_bytes)} note={stats.free_runs > 0 ? `in ${count(stats.free_runs)} pieces of ${bytes(stats.free_bytes / stats.free_runs)} on average` : ""} />
        {stats.packed_bytes > 0 && <Figure label="Packed" value={`${count(stats.packed_blocks)} blocks`} note={`${bytes(stats.packed_payload_bytes)} used of ${bytes(stats.packed_bytes)}`} />}
        <Figure label="Statements" value={bytes(stats.ring_used_bytes)} note={`of ${bytes(stats.ring_bytes)} are read after a crash`} />
        <Figure label="Policy" value={stats.policies.filter((policy) => policy.shards > 0).map((policy) => policy.policy).join(", ")} note={since} />
      </dl>
      <p class="muted hint">Small models of the cache run all policies beside each other. The one that misses least is followed, in each shard by itself.</p>
      <table class="compact">
        <thead><tr><th scope="col">Policy</th><th scope="col">Followed</th><th scope="col" class="right">Would miss</th><th scope="col" class="grow"><span class="hidden">Compared</span></th></tr></thead>
        <tbody>{stats.policies.map((policy) => (
          <tr key={policy.policy}>
            <th scope="row">{policy.policy}</th>
            <td data-label="Followed">{policy.shards > 0 ? <Chip>{policy.shards === shards ? "now" : `in ${policy.shards} of ${shards} shards`}</Chip> : "–"}</td>
            <td class="right" data-label="Would miss">{policy.miss_part === null ? "not known yet" : percent(policy.miss_part)}</td>
            <td class="grow">{policy.miss_part !== null && <Bar part={policy.miss_part / most} colour="dirty" />}</td>
          </tr>
        ))}</tbody>
      </table>
    </Panel>
  );
}
