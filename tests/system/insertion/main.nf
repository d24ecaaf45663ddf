// An ordinary pipeline. It says nothing about retries and knows nothing of Forestay; what goes wrong is in the program, the machines and the scheduler around it.
process part {
  memory '400 MB'
  time '5 min'
  input: val n
  output: path "part${n}.txt"
  script: "measure ${n} > part${n}.txt"
}

process join_parts {
  memory '400 MB'
  time '5 min'
  publishDir 'out'
  input: path parts
  output: path 'merged.txt'
  script: "cat ${parts} > merged.txt"
}

workflow { part(Channel.of(1, 2)) | collect | join_parts }
