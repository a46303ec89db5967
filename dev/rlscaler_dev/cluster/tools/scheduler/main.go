// Command scheduler is kube-scheduler with one more plugin, which asks rlscaler's suggestion server where pods belong.
//
// Everything else is Kubernetes' own kube-scheduler. The plugin acts in the profiles that enable it, see
// `rlscaler scheduler config --plugin`.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(Name, New))))
}
