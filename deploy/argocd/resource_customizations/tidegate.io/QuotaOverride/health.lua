-- What Argo CD shows of a QuotaOverride: whether it is in force for everybody whom it names, which its condition Ready says. One that is
-- over did what it was to do, and one whose time has not come has nothing to do.
-- Argo CD opens no string library for this script.

-- reasons for not being ready that pass by themselves, or once another object is there
local passing = {
  GivenBack = true,
  NoSuchMember = true,
  PolicyNotFound = true,
  Starting = true,
  Stepping = true,
  TopicNotFound = true,
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
  return {status = "Progressing", message = "The operator has said nothing of this override yet"}
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "The operator has not acted on the newest spec yet"}
end
if ready.status == "True" or ready.reason == "OverrideExpired" or ready.reason == "OverrideScheduled" then
  return {status = "Healthy", message = ready.message}
end
-- overruled: it waits for the end of the override that takes precedence, and nothing is wrong with either
if ready.reason == "Paused" or ready.reason == "Overruled" then
  return {status = "Suspended", message = ready.message}
end
-- Unknown: the policy lacks an input, and says itself whether that is bad
if condition("Stalled").status ~= "True" and (ready.status == "Unknown" or passing[ready.reason]) then
  return {status = "Progressing", message = ready.message}
end
return {status = "Degraded", message = ready.message}
