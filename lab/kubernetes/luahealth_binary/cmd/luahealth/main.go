// Command luahealth says what Argo CD would show of Kubernetes objects: luahealth SCRIPT.lua OBJECT.json... writes, for each object and in
// their order, one line of JSON with its status and message. The script runs in Argo CD's own interpreter, as restricted as there.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if len(os.Args) < 3 {
		fail("call it as luahealth SCRIPT.lua OBJECT.json...")
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	lines := json.NewEncoder(os.Stdout)
	for _, path := range os.Args[2:] {
		health, err := assess(string(script), path)
		if err == nil {
			err = lines.Encode(health)
		}
		if err != nil {
			fail(path, ": ", err)
		}
	}
}

func assess(script, path string) (any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	object := unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return nil, err
	}
	return lua.VM{}.ExecuteHealthLua(&object, script)
}

func fail(told ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"luahealth: "}, told...)...)
	os.Exit(1)
}
