# Completes the command line of monarch. Made by `python -m monarch.cli.pages`.
function __monarch_at # whether exactly these words stand behind monarch
    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __monarch_in $argv
end
function __monarch_in # whether these words stand behind monarch, and no program yet
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    test (count $argv) -eq 0; and return
    test (count $words) -gt (count $argv); or return
    set -l last (math 1 + (count $argv))
    test "$words[2..$last]" = "$argv"
end
function __monarch_behind # whether a program is named
    contains -- -- (commandline -opc)
end
function __monarch_program
    set -l words (commandline -opc) (commandline -ct)
    set -l first (math 1 + (contains -i -- -- $words))
    complete -C (string join ' ' -- $words[$first..])
end
complete -c monarch -f
complete -c monarch -n __monarch_at -l version -d 'Show the version and exit'
complete -c monarch -n __monarch_at -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_at' -a run -d 'Run a program with its dataset staged.'
complete -c monarch -n '__monarch_in run' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in run' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in run' -l data -r -F -d 'Stage the files below PATH'
complete -c monarch -n '__monarch_in run' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in run' -l job -x -d 'Name of the job of this program'
complete -c monarch -n '__monarch_in run' -l report -r -F -d 'Write the report of the job to FILE.json (%j: job, %n: node, %t: time, %p: process id of the agent); to FILE.html: a page, with its JSON beside it'
complete -c monarch -n '__monarch_in run' -l index -r -F -d 'Load the index file FILE instead of scanning'
complete -c monarch -n '__monarch_in run' -l hosts -x -d 'The nodes of the job, such as n[0-3],big:7001, if no scheduler names them'
complete -c monarch -n '__monarch_in run' -l secret-file -r -F -d 'Read the secret of the job from FILE (32 bytes, mode 600)'
complete -c monarch -n '__monarch_in run' -l strict -d 'Exit with 125 instead of running without Monarch'
complete -c monarch -n '__monarch_in run' -s q -l quiet -d 'Print warnings only, no start line and no summary'
complete -c monarch -n '__monarch_in run' -l wait -d 'Wait until the job has ended on this node'
complete -c monarch -n '__monarch_in run' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in run' -a '(__fish_complete_command)'
complete -c monarch -n __monarch_behind -a '(__monarch_program)'
complete -c monarch -n '__monarch_at' -a status -d 'Show the state of agents.'
complete -c monarch -n '__monarch_in status' -l job -x -d 'Show only the agent of this job'
complete -c monarch -n '__monarch_in status' -l json -d 'Print one line of JSON per agent'
complete -c monarch -n '__monarch_in status' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in status' -F
complete -c monarch -n '__monarch_at' -a top -d 'Watch agents while they run.'
complete -c monarch -n '__monarch_in top' -l job -x -d 'Watch only the agent of this job'
complete -c monarch -n '__monarch_in top' -l once -d 'Print the figures once'
complete -c monarch -n '__monarch_in top' -l interval -x -d 'Time between two looks'
complete -c monarch -n '__monarch_in top' -l json -d 'Print one line of JSON per agent and look'
complete -c monarch -n '__monarch_in top' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in top' -F
complete -c monarch -n '__monarch_at' -a stop -d 'Stop the agents of this node.'
complete -c monarch -n '__monarch_in stop' -l job -x -d 'Stop only the agent of this job'
complete -c monarch -n '__monarch_in stop' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in stop' -F
complete -c monarch -n '__monarch_at' -a report -d 'Print a report file.'
complete -c monarch -n '__monarch_in report' -l node -x -d 'Print the part about one node'
complete -c monarch -n '__monarch_in report' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in report' -l html -r -F -d 'Make a page of HTML; - is standard output'
complete -c monarch -n '__monarch_in report' -l compare -r -F -d 'Print the figures that differ between two reports, side by side'
complete -c monarch -n '__monarch_in report' -l assert -x -d 'Exit with 1 if a condition on the figures is false; may be repeated'
complete -c monarch -n '__monarch_in report' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in report' -F
complete -c monarch -n '__monarch_at' -a hint -d 'Name the files that will be opened next.'
complete -c monarch -n '__monarch_in hint' -l order -r -F -d 'Paths in the order in which they will be opened, one on each line; "-": standard input'
complete -c monarch -n '__monarch_in hint' -l null -s 0 -d 'A NUL ends each path, not a line'
complete -c monarch -n '__monarch_in hint' -l job -x -d 'Tell only the agent of this job'
complete -c monarch -n '__monarch_in hint' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in hint' -F
complete -c monarch -n '__monarch_at' -a index -d 'Scan a dataset and save its index.'
complete -c monarch -n '__monarch_in index' -s o -l output -r -F -d 'Write the index of the PATH to FILE'
complete -c monarch -n '__monarch_in index' -s c -l config -r -F -d 'Read datasets and patterns from FILE'
complete -c monarch -n '__monarch_in index' -l check -r -F -d 'Only check whether FILE matches its dataset'
complete -c monarch -n '__monarch_in index' -l list -d 'List the indexes that scans have saved'
complete -c monarch -n '__monarch_in index' -l forget -d 'Remove the saved indexes of each PATH'
complete -c monarch -n '__monarch_in index' -l all -d 'With --forget: of all paths'
complete -c monarch -n '__monarch_in index' -l json -d 'With --list: print JSON'
complete -c monarch -n '__monarch_in index' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in index' -F
complete -c monarch -n '__monarch_at' -a codecs -d 'Measure codecs on a dataset, and choose one.'
complete -c monarch -n '__monarch_in codecs' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in codecs' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in codecs' -l tier -x -d 'The tier that is to be packed, such as ssd:200GB:/local; replaces those of the configuration'
complete -c monarch -n '__monarch_in codecs' -l batch -x -d 'Number of files that the job reads for one iteration'
complete -c monarch -n '__monarch_in codecs' -l compute -x -d 'How long the job computes in an iteration, while the next batch is read: 60ms'
complete -c monarch -n '__monarch_in codecs' -l threads -x -d 'Number of threads that decompress'
complete -c monarch -n '__monarch_in codecs' -l codec -x -d 'A codec to try too, such as zstd:19'
complete -c monarch -n '__monarch_in codecs' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in codecs' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in codecs' -F
complete -c monarch -n '__monarch_at' -a records -d 'Index packed records and report their cost.'
complete -c monarch -n '__monarch_in records' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_at records' -a ingest -d 'Write the records of SRC to a store, with an index of them.'
complete -c monarch -n '__monarch_in records ingest' -l to -x -d 'Address of the store'
complete -c monarch -n '__monarch_in records ingest' -l index -x -d 'Name of the index; SRC\'s name by default'
complete -c monarch -n '__monarch_in records ingest' -l columns -r -F -d 'Take columns, such as label, from a CSV file with a row for each record'
complete -c monarch -n '__monarch_in records ingest' -l verify -l no-verify -d 'Read everything back and compare checksums (default)'
complete -c monarch -n '__monarch_in records ingest' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in records ingest' -F
complete -c monarch -n '__monarch_at records' -a show -d 'Index packed records, and tell what an epoch over them costs.'
complete -c monarch -n '__monarch_in records show' -l fresh -d 'Make a new index'
complete -c monarch -n '__monarch_in records show' -l keep -x -d 'Write the index of a listed store into it, so that URL?index=NAME reads it'
complete -c monarch -n '__monarch_in records show' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in records show' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in records show' -F
complete -c monarch -n '__monarch_at' -a stage -d 'Fill the tiers of nodes before a job.'
complete -c monarch -n '__monarch_in stage' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in stage' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in stage' -l data -r -F -d 'Stage the files below PATH'
complete -c monarch -n '__monarch_in stage' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in stage' -l index -r -F -d 'Load the index file FILE instead of scanning'
complete -c monarch -n '__monarch_in stage' -l report -r -F -d 'Write the report of the job to FILE.json (%j: job, %n: node, %t: time, %p: process id of the agent); to FILE.html: a page, with its JSON beside it'
complete -c monarch -n '__monarch_in stage' -l hosts -x -d 'The nodes of the job, such as n[0-3],big:7001, if no scheduler names them'
complete -c monarch -n '__monarch_in stage' -l secret-file -r -F -d 'Read the secret of the job from FILE (32 bytes, mode 600)'
complete -c monarch -n '__monarch_in stage' -l mpi -d 'Let the nodes of an MPI launch find each other by MPI, with one process on each node'
complete -c monarch -n '__monarch_in stage' -l mode -x -a 'auto partition replicate' -d 'On several nodes: partition: one copy in the job; replicate: a copy on every node; auto: as many copies as fit'
complete -c monarch -n '__monarch_in stage' -s q -l quiet -d 'Print no summary'
complete -c monarch -n '__monarch_in stage' -l check -d 'Stage nothing: compare what is retained on this node with the datasets, and print what lacks or is wrong'
complete -c monarch -n '__monarch_in stage' -l evict -d 'Stage nothing: remove the retained copies of the datasets from the tiers of this node'
complete -c monarch -n '__monarch_in stage' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in stage' -F
complete -c monarch -n '__monarch_at' -a list -d 'List what is retained on this node.'
complete -c monarch -n '__monarch_in list' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in list' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in list' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in list' -l json -d 'Print a line of JSON per copy'
complete -c monarch -n '__monarch_in list' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in list' -F
complete -c monarch -n '__monarch_at' -a plan -d 'Predict what each node would store.'
complete -c monarch -n '__monarch_in plan' -s c -l config -r -F -d 'Read datasets and tiers from FILE'
complete -c monarch -n '__monarch_in plan' -l set -x -d 'Set one value'
complete -c monarch -n '__monarch_in plan' -l data -r -F -d 'Plan for the files below PATH'
complete -c monarch -n '__monarch_in plan' -l index -r -F -d 'Plan for the files in the index file FILE'
complete -c monarch -n '__monarch_in plan' -l files -x -d 'Plan for N files of one size, which --size tells, instead of a dataset'
complete -c monarch -n '__monarch_in plan' -l size -x -d 'What these files have together'
complete -c monarch -n '__monarch_in plan' -l nodes -x -d 'Number of nodes, instead of the configured hosts'
complete -c monarch -n '__monarch_in plan' -l hosts -x -d 'Names of the nodes, such as n[0-3],big'
complete -c monarch -n '__monarch_in plan' -l tier -x -d 'A tier of each node, such as ram:8GiB, as in `monarch run`'
complete -c monarch -n '__monarch_in plan' -l capacity -x -d 'Total capacity of a node\'s tiers, instead of tiers: one size for all nodes, or one for each'
complete -c monarch -n '__monarch_in plan' -l mode -x -a 'auto partition replicate' -d 'partition: one copy in the job; replicate: a copy on every node; auto: as many copies as fit'
complete -c monarch -n '__monarch_in plan' -l epochs -x -d 'Number of times that the job reads the dataset'
complete -c monarch -n '__monarch_in plan' -l simulate -d 'Predict how long epochs take, and what limits them, with --origin-rate'
complete -c monarch -n '__monarch_in plan' -l origin-rate -x -d 'Simulate: what the origin gives to all nodes together, such as 20GB/s'
complete -c monarch -n '__monarch_in plan' -l origin-latency -x -d 'Simulate: time of an open at the origin, and of a read before its bytes'
complete -c monarch -n '__monarch_in plan' -l network-rate -x -d 'Simulate: what a node can send, and receive, at the same time'
complete -c monarch -n '__monarch_in plan' -l tier-rate -x -d 'Simulate: how fast each tier is read'
complete -c monarch -n '__monarch_in plan' -l readers -x -d 'Simulate: processes of a node that read at the same time'
complete -c monarch -n '__monarch_in plan' -l reads -x -a 'sharded everything' -d 'Simulate: in an epoch each node reads its share of the files, or each reads everything'
complete -c monarch -n '__monarch_in plan' -l compute -x -d 'Simulate: what a node computes, as the time of a file (2ms) or a rate (64MB/s); its readers read ahead meanwhile'
complete -c monarch -n '__monarch_in plan' -l serial -d 'Simulate: each reader computes itself, before it reads the next file'
complete -c monarch -n '__monarch_in plan' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in plan' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in plan' -F
complete -c monarch -n '__monarch_at' -a doctor -d 'Report what prevents staging here.'
complete -c monarch -n '__monarch_in doctor' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in doctor' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in doctor' -l data -r -F -d 'Stage the files below PATH'
complete -c monarch -n '__monarch_in doctor' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in doctor' -l hosts -x -d 'The nodes of the job, such as n[0-3],big:7001, if no scheduler names them'
complete -c monarch -n '__monarch_in doctor' -l root -r -F -d 'The root directory of a container: whether the shim loads in it'
complete -c monarch -n '__monarch_in doctor' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in doctor' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in doctor' -F
complete -c monarch -n '__monarch_at' -a env -d 'Print what a container needs.'
complete -c monarch -n '__monarch_in env' -l apptainer -d 'Print shell commands for Apptainer and Singularity'
complete -c monarch -n '__monarch_in env' -l docker -d 'Print options of `docker run` or `podman run`'
complete -c monarch -n '__monarch_in env' -l bwrap -d 'Print options of bwrap (bubblewrap)'
complete -c monarch -n '__monarch_in env' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in env' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in env' -l data -r -F -d 'Stage the files below PATH'
complete -c monarch -n '__monarch_in env' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in env' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in env' -F
complete -c monarch -n '__monarch_at' -a clean -d 'Remove leftovers of dead jobs.'
complete -c monarch -n '__monarch_in clean' -l retained -d 'Also remove files that are retained for later jobs'
complete -c monarch -n '__monarch_in clean' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in clean' -F
complete -c monarch -n '__monarch_at' -a config -d 'Check, show or create a configuration.'
complete -c monarch -n '__monarch_in config' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_at config' -a check -d 'Report every mistake in a configuration.'
complete -c monarch -n '__monarch_in config check' -s c -l config -r -F -d 'The same as FILE'
complete -c monarch -n '__monarch_in config check' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in config check' -F
complete -c monarch -n '__monarch_at config' -a init -d 'Write a commented configuration.'
complete -c monarch -n '__monarch_in config init' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in config init' -F
complete -c monarch -n '__monarch_at config' -a schema -d 'Print the JSON Schema of a configuration file.'
complete -c monarch -n '__monarch_in config schema' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in config schema' -F
complete -c monarch -n '__monarch_at config' -a show -d 'Print the effective configuration.'
complete -c monarch -n '__monarch_in config show' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in config show' -l set -x -d 'Set one value'
complete -c monarch -n '__monarch_in config show' -l data -r -F -d 'As in `monarch run`'
complete -c monarch -n '__monarch_in config show' -l tier -x -d 'As in `monarch run`'
complete -c monarch -n '__monarch_in config show' -l origin -d 'Print the source of each value'
complete -c monarch -n '__monarch_in config show' -l json -d 'Print JSON'
complete -c monarch -n '__monarch_in config show' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in config show' -F
complete -c monarch -n '__monarch_at' -a help -d 'Explain a verb or a key.'
complete -c monarch -n '__monarch_in help' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in help' -F
complete -c monarch -n '__monarch_at' -a version -d 'Print the version.'
complete -c monarch -n '__monarch_in version' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in version' -F
complete -c monarch -n '__monarch_at' -a agent -d 'Start an agent before its programs.'
complete -c monarch -n '__monarch_in agent' -s c -l config -r -F -d 'Read the configuration from FILE'
complete -c monarch -n '__monarch_in agent' -l set -x -d 'Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%'
complete -c monarch -n '__monarch_in agent' -l data -r -F -d 'Stage the files below PATH'
complete -c monarch -n '__monarch_in agent' -l tier -x -d 'Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local'
complete -c monarch -n '__monarch_in agent' -l job -x -d 'Name of the job of this program'
complete -c monarch -n '__monarch_in agent' -l report -r -F -d 'Write the report of the job to FILE.json (%j: job, %n: node, %t: time, %p: process id of the agent); to FILE.html: a page, with its JSON beside it'
complete -c monarch -n '__monarch_in agent' -l index -r -F -d 'Load the index file FILE instead of scanning'
complete -c monarch -n '__monarch_in agent' -l hosts -x -d 'The nodes of the job, such as n[0-3],big:7001, if no scheduler names them'
complete -c monarch -n '__monarch_in agent' -l secret-file -r -F -d 'Read the secret of the job from FILE (32 bytes, mode 600)'
complete -c monarch -n '__monarch_in agent' -s q -l quiet -d 'Print warnings only, no start line and no summary'
complete -c monarch -n '__monarch_in agent' -s h -l help -d 'Show this message and exit'
complete -c monarch -n '__monarch_in agent' -F
