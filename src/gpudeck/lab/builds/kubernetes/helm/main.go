// SPDX-License-Identifier: Apache-2.0

// Helm's command line, built beside Kubernetes so that both share one set of
// compiled packages.
package main

import (
	"os"

	helm "helm.sh/helm/v4/pkg/cmd"
)

func main() {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		os.Exit(1)
	}
	if err := command.Execute(); err != nil {
		if failure, ok := err.(helm.CommandError); ok {
			os.Exit(failure.ExitCode)
		}
		os.Exit(1)
	}
}
