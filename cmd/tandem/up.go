package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"tandem/cluster"
)

// Ports that `tandem up` takes if they are free: RocketMQ's own.
const (
	preferredNamesrvPort = 9876
	preferredBrokerPort  = 10911
	mostBrokers          = 16 // of each kind
)

type upFlags struct {
	dir           string
	pairs, slaves int
	role          string
}

func newUpCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up [--dir DIR] [--pairs=1] [--slaves=1] [--brokerRole=SYNC_MASTER]",
		Short: "Run a whole local cluster until Ctrl-C",
		Long: `Runs a name server and one or more masters, each with its slaves, as child processes on this machine, until Ctrl-C or SIGTERM.
RocketMQ's usual ports are taken where they are free, others where they are not.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return inScratch(f.dir, "up", func(files scratch, binary string) error {
				return up(ctx, f, files, binary, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&f.dir, "dir", "", "directory for stores, settings and logs, kept at the end; default a temporary one that is removed")
	cmd.Flags().IntVar(&f.pairs, "pairs", 1, "number of masters")
	cmd.Flags().IntVar(&f.slaves, "slaves", 1, "number of slaves of each master")
	cmd.Flags().StringVar(&f.role, "brokerRole", "SYNC_MASTER", "role of the masters: SYNC_MASTER or ASYNC_MASTER")
	return cmd
}

func (f upFlags) validate() error {
	roles := []string{"SYNC_MASTER", "ASYNC_MASTER"}
	switch {
	case f.pairs < 1 || f.pairs > mostBrokers:
		return usagef("--pairs=%d: not valid; valid: a whole number from 1 to %d", f.pairs, mostBrokers)
	case f.slaves < 0 || f.slaves > mostBrokers:
		return usagef("--slaves=%d: not valid; valid: a whole number from 0 to %d", f.slaves, mostBrokers)
	case !slices.Contains(roles, f.role):
		return usagef("--brokerRole=%s: not valid for masters; valid: %s or %s", f.role, roles[0], roles[1])
	}
	return nil
}

func up(ctx context.Context, f upFlags, files scratch, binary string, out io.Writer) (err error) {
	c, err := cluster.New(cluster.Options{
		Dir: files.dir, Pairs: f.pairs, Slaves: f.slaves, Role: f.role, Master: cluster.Tandem{Binary: binary},
		NameServerPort: preferredNamesrvPort, BrokerPort: preferredBrokerPort,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it started
		}
		return err
	}
	printCluster(out, c, files)
	return c.Watch(ctx)
}

func printCluster(out io.Writer, c *cluster.Cluster, files scratch) {
	for _, n := range c.Nodes() {
		role := n.Conf["brokerRole"]
		if role == "" {
			role = "name server"
		}
		fmt.Fprintf(out, "%-20s %-12s %-16s process %d\n", n.Name, role, n.Addr(), n.Process().PID())
	}
	kept := ", kept"
	if files.ours {
		kept = ", removed at the end"
	}
	fmt.Fprintf(out, "Files in %s%s. Clients connect to %s. Ctrl-C stops all.\n", files.dir, kept, c.NameServer.Addr())
}
