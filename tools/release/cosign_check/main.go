// Checks signatures as cosign does, by cosign's own library:
//
//	cosign-check KEY REFERENCE...
//
// KEY is a file with a public key as PEM, REFERENCE an image or a chart, `host/name:tag` or
// `host/name@digest`. It prints each one's digest, or ends with code 1. No transparency log is
// asked. Logins are those of docker's config.json.
package main

import (
	"context"
	"crypto"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	ociremote "github.com/sigstore/cosign/v2/pkg/oci/remote"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

func main() {
	if len(os.Args) < 3 {
		fail("usage: cosign-check KEY REFERENCE...")
	}
	verifier, err := verifierOf(os.Args[1])
	if err != nil {
		fail(fmt.Sprintf("%s holds no public key: %v", os.Args[1], err))
	}
	for _, argument := range os.Args[2:] {
		digest, err := check(argument, verifier)
		if err != nil {
			fail(fmt.Sprintf("%s: %v", argument, err))
		}
		fmt.Println(digest)
	}
}

func verifierOf(path string) (signature.Verifier, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(pem)
	if err != nil {
		return nil, err
	}
	return signature.LoadVerifier(key, crypto.SHA256)
}

// check returns the digest that the signature beside the reference is about.
func check(argument string, verifier signature.Verifier) (name.Digest, error) {
	reference, err := name.ParseReference(argument)
	if err != nil {
		return name.Digest{}, err
	}
	digest, err := ociremote.ResolveDigest(reference)
	if err != nil {
		return name.Digest{}, err
	}
	options := &cosign.CheckOpts{
		SigVerifier:   verifier,
		ClaimVerifier: cosign.SimpleClaimVerifier,
		IgnoreTlog:    true,
	}
	_, _, err = cosign.VerifyImageSignatures(context.Background(), digest, options)
	return digest, err
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
