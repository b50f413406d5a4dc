"""Sound objects that ask much of a schema: models and API servers accept each."""

from tests.unit.resources.documents import (
    ABSENT,
    NIGHTS,
    Document,
    budget,
    member,
    override,
    policy,
    queue,
    tier,
)

SOUND: dict[str, Document] = {
    "a policy that uses every field": policy(),
    "tables in a bucket that is not Amazon's": policy(
        {
            "rollup.storage": {
                "url": "s3://usage/orders",
                "endpoint": "https://minio.storage:9000",
                "region": "us-east-1",
                "pathStyle": True,
                "credentialsSecretRef": {"name": "minio"},
                "catalog": {"type": "rest", "uri": "http://catalog.lake.svc:8181/api/v1/"},
            },
            "rollup.eventLog": ABSENT,
        }
    ),
    "a policy of only what has no default": {
        **policy(),
        "spec": {
            "mode": "Observe",
            "kafka": {
                "bootstrapServers": "[::1]:9092",
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": "[::1]:2181"},
            },
        },
    },
    "schedules of both directions as one": policy(
        {
            "brokers": {
                "combined": {"limit": "1G"},
                "schedules": [{"from": "00:00", "to": "00:00", "combined": {"limit": "2G"}}],
            }
        }
    ),
    "a limit at night alone": policy(
        {
            "brokers": {
                "egress": {"capacity": "2G"},
                "schedules": [
                    {"from": "22:00", "to": "06:00", "egress": {"limit": "1G"}},
                    {"from": "02:00", "to": "04:00", "ingress": {"limit": "1G"}},
                ],
            }
        }
    ),
    "a tier that uses every field": tier(),
    "an exempt member": tier(
        {"level": "L0", "throttledRates": ABSENT, "members": [member("free")]}
    ),
    "500 members": tier(
        {
            "members": [
                member(f"m{i}", topics=["a"], contract={"perPartition": {"fetch": "2Mi"}})
                for i in range(500)
            ]
        }
    ),
    "a rate at the ceiling": tier({"members.0.contract.perPartition.fetch": "9007199254740991"}),
    "rates with fractions": tier(
        {
            "throttledRates.perPartition.fetch": "1.5Ki",
            "members.0.contract.perPartition.fetch": "2.0625Gi",
        }
    ),
    "a throttled rate equal to the contract": tier({"throttledRates.perPartition.fetch": "10Mi"}),
    "a user with a TLS name": tier({"members.0.user": "CN=kafka,OU=x,O=y"}),
    "the user of everybody without login": tier({"members.0.user": "ANONYMOUS"}),
    "an override that uses every field": override(),
    "an override of a level": override(
        {"target": {"level": "L2"}, "action": "Exempt", "rates": ABSENT}
    ),
    "more for level L0": override(
        {"target": {"level": "L0"}, "rates": {"total": {"produce": "4096"}}}
    ),
    "an end with a fraction and an offset": override(
        {"expiresAt": "2028-02-29T23:59:59.123456789+02:00"}
    ),
    "an end that is over": override({"startsAt": ABSENT, "expiresAt": "2001-01-01T00:00:00Z"}),
    "a start before the end by its offset alone": override(
        {"startsAt": "2026-11-30T06:30:00+01:00", "expiresAt": "2026-11-30T06:00:00Z"}
    ),
    "an override that comes back": override({"expiresAt": ABSENT, "recurrence": NIGHTS}),
    "an override that comes back at every time": override(
        {
            "startsAt": ABSENT,
            "expiresAt": ABSENT,
            "recurrence": {"from": "00:00", "to": "00:00", "until": NIGHTS["until"]},
        }
    ),
    "every topic": tier({"members.0.topics": ["*"]}),
    "tokens of an endpoint": policy(
        {
            "kafka.authentication": {
                "type": "oauthbearer",
                "tokenEndpointUri": "https://idp.example:8443/realms/kafka/token",
                "clientId": "tidegate",
                "clientSecret": {"secretName": "tidegate", "key": "clientSecret"},
                "scope": "kafka.read kafka.write",
                "audience": "kafka",
                "tlsTrustedCertificates": [{"secretName": "idp", "pattern": "*.crt"}],
                "saslExtensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
            }
        }
    ),
    "a token of the operator": policy(
        {"kafka.authentication": {"type": "oauthbearer", "accessTokenFile": "kafka"}}
    ),
    "a role of AWS": policy(
        {
            "kafka.authentication": {
                "type": "aws-msk-iam",
                "region": "us-gov-west-1",
                "roleArn": "arn:aws-us-gov:iam::123456789012:role/streaming/tidegate",
                "accessTokenFile": "aws",
                "stsEndpoint": "https://sts-fips.us-gov-west-1.amazonaws.com",
            }
        }
    ),
    "an access key of AWS for forwarders": queue(
        {
            "authentication": {
                "type": "aws-msk-iam",
                "region": "eu-central-1",
                "accessKey": {
                    "secretName": "forwarder",
                    "accessKeyId": "id",
                    "secretAccessKey": "secret",
                    "sessionToken": "session",
                },
            }
        }
    ),
    "a budget that uses every field": budget(),
    "a budget of budgets": budget(
        {"members": ABSENT, "parent": ABSENT, "share": ABSENT, "total.produce": ABSENT}
    ),
    "a queue that uses every field": queue(),
    "a queue that needs only what has no default": queue(
        dict.fromkeys(("authentication", "tls", "topicPrefix", "forwarders", "topics"), ABSENT)
        | {"delays": [{"seconds": 1}], "deletionPolicy": ABSENT, "policyRef.namespace": ABSENT}
    ),
    "a queue of the most topics": queue(
        {"delays": [{"seconds": n, "topics": 8} for n in range(1, 65)]}
    ),
    "a queue with the longest prefix": queue({"topicPrefix": "a" * 200}),
    "a target that looks like a topic of another queue": queue(
        {"target": {"allowed": ["*"], "default": "shop.paid.5.0"}}
    ),
}
