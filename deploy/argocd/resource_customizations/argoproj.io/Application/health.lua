-- What Argo CD shows of an Application inside another one: that Application's own health. Argo CD has left this out since 1.8; without it
-- a wave of Applications does not wait for the one before it.
local health = (obj.status or {}).health or {}
return {status = health.status or "Progressing", message = health.message or ""}
