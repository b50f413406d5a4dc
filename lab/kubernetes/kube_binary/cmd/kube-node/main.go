// Command kube-node holds all parts of a Kubernetes with a node, in one binary: what `kube` holds, and beside it
// what starts Pods. The name it is called by (a link), or else its first argument, says which part runs. Every
// part is upstream's own command.
//
// It is a second command, so that tests which need no node do not wait until kubelet and the others are compiled.
package main

import (
	"context"
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
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func part() string {
	name := filepath.Base(os.Args[0])
	if name == "kube-node" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	return name
}

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := part()
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubeadm":
		if err := kubeadm.Run(); err != nil {
			os.Exit(1)
		}
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		command, known := commands[name]
		if !known {
			fmt.Fprintln(os.Stderr, "kube-node: call it as etcd, kubeadm, kubectl, kubelet, kube-apiserver, kube-controller-manager, kube-proxy or kube-scheduler")
			os.Exit(2)
		}
		os.Exit(cli.Run(command()))
	}
}
