-- What Argo CD shows of a BandwidthBudget: whether it is divided among its members, which its condition Ready says.
-- Argo CD opens no string library for this script.

-- reasons for not being ready that pass by themselves, or once another object is there
local passing = {
  BudgetParentUnfit = true,
  BudgetUnmeasured = true,
  GivenBack = true,
  NoSuchMember = true,
  PolicyNotFound = true,
  Starting = true,
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
  return {status = "Progressing", message = "The operator has said nothing of this budget yet"}
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "The operator has not acted on the newest spec yet"}
end
if ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
if ready.reason == "Paused" then
  return {status = "Suspended", message = ready.message}
end
-- Unknown: the policy lacks an input, and says itself whether that is bad
if condition("Stalled").status ~= "True" and (ready.status == "Unknown" or passing[ready.reason]) then
  return {status = "Progressing", message = ready.message}
end
return {status = "Degraded", message = ready.message}
