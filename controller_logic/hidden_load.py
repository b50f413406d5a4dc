"""What a card's mean does not show yet: clients that were muted for a part of it, and will send at their new quota from now on.

After a cut a client is silent while Kafka forgets what it had sent. A mean over that time is lower than what comes, so that the next tier
would be asked for too little, and again a round later. It sizes what is needed; whether a broker is over its limit it does not touch.
"""

from controller_logic.scene import Scene
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.pressure import Card


def hidden_load(scene: Scene, card: Card) -> float:
    """Bytes/s that the card's mean lacks; 0 where a scrape is as long as a client's whole rhythm, or nobody was lowered in it."""
    if card.at_seconds is None or card.span_seconds is None or scene.scrape_seconds >= scene.settings.tooth_seconds:
        return 0.0
    bound = [bucket for bucket in scene.throttled if bucket.binds_on(card.broker) and card.broker in bucket.flows]
    return sum(bucket.cap * _muted_seconds(bucket, scene, card.at_seconds, card.span_seconds) for bucket in bound) / card.span_seconds


def _muted_seconds(bucket: Bucket, scene: Scene, until_seconds: float, span_seconds: float) -> float:
    """For how much of the span its last lowering muted it, at the most as long as a step may."""
    change, settings = bucket.rate.last_change, scene.settings
    if change is None or change.previous is None or not change.previous > bucket.cap > 0:
        return 0.0
    held = min(change.previous, bucket.seen.peak)
    mute_seconds = min(settings.max_mute_seconds, settings.window.seconds * (held / bucket.cap - 1))
    end_seconds = min(until_seconds, change.at_seconds + mute_seconds)
    return max(0.0, end_seconds - max(until_seconds - span_seconds, change.at_seconds))
