package main

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	printError(stderr, cmd.CommandPath(), err)
	return exitStatus(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tandem",
		Short: "A RocketMQ-compatible message broker with synchronous replication",
		Long: `tandem is a message broker that speaks Apache RocketMQ's protocols and writes its files. A master and its slaves
ride together: with brokerRole=SYNC_MASTER a producer hears "stored" only when the message is on two machines.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(newBrokerCommand(), newNamesrvCommand(), newStatusCommand(), newStoreCommand(),
		newUpCommand(), newDemoCommand(), newBenchCommand(), newVersionCommand())
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if not .HasAvailableSubCommands}}", 1))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	harden(root)
	return root
}

// harden makes wrong arguments of cmd and its subcommands a usage error, a missing subcommand included.
func harden(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		harden(sub)
	}
	cmd.DisableFlagsInUseLine = true
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.SuggestionsMinimumDistance = 2
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = missingSubcommand
		return
	}
	check := cmd.Args
	if check == nil {
		check = noArguments
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return usageError(check(cmd, args)) }
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q: no arguments are taken", args[0])
	}
	return nil
}

func missingSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("a command is missing; %s --help lists them", cmd.CommandPath())
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; is %s meant?", args[0], near[0])
	}
	return usagef("unknown command %q; %s --help lists them", args[0], cmd.CommandPath())
}
