// Command kube holds the parts of Kubernetes that the lab's API server needs, in one binary: the name it is
// called by (a link), or else its first argument, says which part runs. Every part is upstream's own command.
//
// One link step instead of four keeps the first build of a fresh machine short. The parts that need a node
// (kubelet, proxy, scheduler, kubeadm) are left out on purpose: nothing here runs Pods.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func part() string {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	return name
}

func main() {
	var command *cobra.Command
	switch part() {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	default:
		fmt.Fprintln(os.Stderr, "kube: call it as etcd, kube-apiserver, kube-controller-manager or kubectl")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
