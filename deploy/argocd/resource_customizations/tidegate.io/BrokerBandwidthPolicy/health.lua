-- Health of a BrokerBandwidthPolicy for Argo CD, from its condition Ready.
-- Argo CD opens no string library for this script.

-- reasons for not being ready that pass by themselves
local passing = {
  Conflict = true,
  ControllerAbsent = true,
  KubernetesUnreachable = true,
  LedgerNotFound = true,
  ListIncomplete = true,
  OutcomeUnknown = true,
  Starting = true,
  TopologyIncomplete = true,
  WriteBudgetSpent = true,
}

local status = obj.status or {}

local function condition(kind)
  for _, one in ipairs(status.conditions or {}) do
    if one.type == kind then
      return one
    end
  end
  return {}
end

local ready = condition("Ready")

if ready.status == nil then
  return {status = "Progressing", message = "The operator has said nothing of this policy yet"}
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "The operator has not acted on the newest spec yet"}
end
-- a person stopped it, and a wave that builds on it should wait until that ends
if ready.reason == "Paused" then
  return {status = "Suspended", message = ready.message}
end
if ready.status == "True" then
  -- Observe and throttling are what was declared: healthy, with a message. So is an unknown load: contracts follow leaders meanwhile.
  local messages = {ready.message}
  if condition("Throttling").status == "True" then
    table.insert(messages, "Throttled, as declared for a broker over its limit: " .. condition("Throttling").message)
  end
  if condition("MetricsFresh").status == "False" then
    table.insert(messages, "Load is not known in full: " .. condition("MetricsFresh").message)
  end
  return {status = "Healthy", message = table.concat(messages, ". ")}
end
if condition("Stalled").status ~= "True" and (ready.status == "Unknown" or passing[ready.reason]) then
  return {status = "Progressing", message = ready.message}
end
return {status = "Degraded", message = ready.message}
