package main

import (
	"errors"

	"github.com/spf13/cobra"

	"tandem/bench/demo"
)

func newDemoCommand() *cobra.Command {
	var dir string
	var messages int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A tour: replicate, measure, kill the master, read on from the slave, audit",
		Long: `Starts a master, a slave and a name server on this machine, sends messages, compares synchronous with asynchronous round trips,
kills the master, goes on consuming from the slave, brings the master back, and checks that every acknowledged message was
consumed exactly as sent and that both logs are identical. Takes about half a minute. The exit status is 0 if all of it holds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if messages < 1 {
				return usagef("--messages=%d: not valid; valid: a whole number from 1 on", messages)
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			err := inScratch(dir, "demo", func(files scratch, binary string) error {
				return demo.Run(ctx, demo.Options{Binary: binary, Dir: files.dir, Out: cmd.OutOrStdout(), Messages: messages})
			})
			if errors.Is(err, demo.ErrVerdict) {
				return errDoesNotHold
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "empty directory for stores, settings and logs, kept at the end; default a temporary one that is removed")
	cmd.Flags().IntVar(&messages, "messages", 5000, "messages sent while all is well")
	return cmd
}
