// Command crdcheck answers as an API server does that is asked to create objects, without a server.
//
//	crdcheck
//
// It reads one object of JSON a line, custom resource definitions and then objects of the kinds that
// they define. It writes one line of JSON for each: what the server would keep, or with which
// message it refuses. An object with a status stands for two requests, as a server drops the status
// of a new object: it is created, and its status is written. The line before all says whose code
// answers.
//
// The code is that of k8s.io/apiextensions-apiserver, in the version of the go.mod that this is built
// with. Fields are validated strictly, as kubectl does it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"k8s.io/apiserver/pkg/cel/environment"
)

const library = "k8s.io/apiextensions-apiserver"

// longestLine is 64 MiB: far above what a server takes in one request.
const longestLine = 64 << 20

type server struct {
	Library string `json:"library"`
	Version string `json:"version"`
	// CEL is the version of Kubernetes whose functions a new rule may use.
	CEL string `json:"cel"`
}

type answer struct {
	Kept    any    `json:"kept,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func main() {
	answers := json.NewEncoder(os.Stdout)
	fatal(answers.Encode(server{library, versionOf(library), environment.DefaultCompatibilityVersion().String()}))
	served := kinds{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		kept, err := served.create(lines.Bytes())
		if err != nil {
			fatal(answers.Encode(answer{Refused: err.Error()}))
			continue
		}
		fatal(answers.Encode(answer{Kept: kept}))
	}
	fatal(lines.Err())
}

func versionOf(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdcheck:", err)
		os.Exit(1)
	}
}
